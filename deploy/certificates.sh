#!/bin/sh -e
# Issues certificates for watchers and their clients with openssl. A folder without a CA gets one, for ten years; a CA
# that is there is never replaced.
#
#   deploy/certificates.sh serving ADDRESS-OR-DNS-NAME …   serving.key and serving.crt, with which watchers serve TLS
#   deploy/certificates.sh client NAME RIGHT …             NAME.key and NAME.crt of a client
#
# A right is kpng://node/NAME, kpng://node/*, kpng://state or kpng://inspection.
# The variables FOLDER (default kpng-certificates) and DAYS (default 365) may be set.
folder=${FOLDER:-kpng-certificates} days=${DAYS:-365}

fail() {
  echo "certificates.sh: $1" >&2
  exit 2
}

kind=$1
case "$kind" in
  serving) name=serving subject=kpng-watcher usage=serverAuth ;;
  client) name=$2 subject=$2 usage=clientAuth ;;
  *) fail "the first word is serving or client" ;;
esac
shift
if [ "$kind" = client ]; then
  case "$name" in "" | ca | serving | *[!A-Za-z0-9._-]*) fail "\"$name\" cannot be the name of a client's files" ;; esac
  shift
fi
[ $# -gt 0 ] || fail "give at least one address, DNS name or right"

names=
for one in "$@"; do
  case "$kind $one" in
    "client kpng://node/"?* | "client kpng://state" | "client kpng://inspection") type=URI ;;
    client*) fail "\"$one\" is not a right" ;;
    "serving "*[!A-Za-z0-9.:*-]*) fail "\"$one\" is neither an address nor a DNS name" ;;
    "serving "*:* | "serving "[0-9]*.[0-9]*.[0-9]*.*[0-9]) type=IP ;;
    *) type=DNS ;;
  esac
  names="$names${names:+,}$type:$one"
done

# openssl also tells of its progress on standard error.
quietly() {
  "$@" 2> "$request/log" || {
    cat "$request/log" >&2
    exit 1
  }
}

umask 077
mkdir -p "$folder"
cd "$folder"
request=$(mktemp -d)
trap 'rm -r "$request"' EXIT
new_key="-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -config $request/config"
cat > "$request/config" <<CONFIG
[req]
distinguished_name = name
[name]
[ca]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = $usage
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = $names
CONFIG

if [ ! -e ca.key ] && [ ! -e ca.crt ]; then
  quietly openssl req -x509 $new_key -extensions ca -subj "/CN=kpng CA" -days 3650 -keyout ca.key -out ca.crt
  echo "new CA: $folder/ca.crt; keep $folder/ca.key secret, and for the next certificate" >&2
fi
openssl x509 -in ca.crt -noout -checkend 0 > /dev/null || fail "the CA in $folder has expired"
quietly openssl req -new $new_key -subj "/CN=$subject" -keyout "$name.key" -out "$request/csr"
quietly openssl x509 -req -in "$request/csr" -CA ca.crt -CAkey ca.key -set_serial "0x$(openssl rand -hex 16)" \
  -days "$days" -extfile "$request/config" -extensions leaf -out "$name.crt"
chmod 644 ca.crt "$name.crt"
echo "written: $folder/$name.key, $folder/$name.crt" >&2
