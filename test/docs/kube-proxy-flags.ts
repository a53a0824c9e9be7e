/**
 * Flags of kube-proxy 1.36.3. *Source:* its `--help`; the deprecated `--healthz-port` and `--metrics-port`, which that
 * does not list; and `cmd/kube-proxy/app/init_windows.go`.
 */
export const kubeProxyFlags: readonly string[] = `
--bind-address --bind-address-hard-fail --boot-id-file --cleanup --cluster-cidr --config --config-sync-period
--conntrack-max-per-core --conntrack-min --conntrack-tcp-be-liberal --conntrack-tcp-timeout-close-wait
--conntrack-tcp-timeout-established --conntrack-udp-timeout --conntrack-udp-timeout-stream --detect-local-mode
--feature-gates --healthz-bind-address --help --hostname-override --init-only --iptables-localhost-nodeports
--iptables-masquerade-bit --iptables-min-sync-period --iptables-sync-period --ipvs-exclude-cidrs
--ipvs-min-sync-period --ipvs-scheduler --ipvs-strict-arp --ipvs-sync-period --ipvs-tcp-timeout --ipvs-tcpfin-timeout
--ipvs-udp-timeout --kube-api-burst --kube-api-content-type --kube-api-qps --kubeconfig --log-flush-frequency
--log-json-info-buffer-size --log-json-split-stream --log-text-info-buffer-size --log-text-split-stream
--logging-format --machine-id-file --masquerade-all --master --metrics-bind-address --nodeport-addresses
--oom-score-adj --pod-bridge-interface --pod-interface-name-prefix --profiling --proxy-mode
--show-hidden-metrics-for-version --v --version --vmodule --write-config-to
--healthz-port --metrics-port
--enable-dsr --forward-healthcheck-vip --network-name --root-hnsendpoint-name --source-vip --windows-service
`
  .trim()
  .split(/\s+/);
