// Only for `go mod download`: the custom resource definitions of the Prometheus operator are in this module.
module kpng/test/manifests/operator

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.85.0
