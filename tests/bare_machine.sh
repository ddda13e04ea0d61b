#!/usr/bin/env bash
# Both commands of the README on a machine that has nothing: a fresh Debian root with python3 and python3-venv only.
#
#   sudo tests/bare_machine.sh [--keep] [--only run|test] [FOLDER]
#
# Needs root, debootstrap, git and a network. FOLDER (default: a new temporary one) receives the root. What is committed
# here is cloned into it; then `python3 run.py` (which has no display there, so it shows the four chats in the terminal)
# and `python3 run.py test` run inside.
#
# Taken from the environment, as this machine is set up: MIRROR and SUITE for debootstrap (default: debootstrap's own
# mirror, bookworm), every PIP_* variable, the certificates of SSL_CERT_FILE, /etc/resolv.conf and the proxy variables.
set -euo pipefail

keep= only= folder=
while [ $# -gt 0 ]; do
  case $1 in
    --keep) keep=1 ;;
    --only) only=$2; shift ;;
    *) folder=$1 ;;
  esac
  shift
done
source_tree=$(cd "$(dirname "$0")/.." && pwd)
folder=${folder:-$(mktemp -d)}
root=$folder/root
suite=${SUITE:-bookworm}
inside=/home/person/kvscope

clean_up() {
  for mounted in dev/pts dev proc; do
    if mountpoint -q "$root/$mounted"; then umount "$root/$mounted"; fi
  done
  [ -n "$keep" ] || rm -rf --one-file-system "$folder"
}
trap clean_up EXIT

if [ ! -e "$root/etc/debian_version" ]; then
  echo "== a fresh root ($suite, python3 and python3-venv)"
  mkdir -p "$folder"
  debootstrap --variant=minbase --include=python3,python3-venv "$suite" "$root" ${MIRROR:-} >"$folder/debootstrap.log"
fi
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind /dev/pts "$root/dev/pts"
cp /etc/resolv.conf "$root/etc/resolv.conf"
certificates=${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}
if [ -r "$certificates" ]; then
  mkdir -p "$root/usr/local/share"
  cp "$certificates" "$root/usr/local/share/host-certificates.crt"
fi
rm -rf "${root:?}$inside"
git clone --quiet --no-hardlinks "$source_tree" "$root$inside"

# Runs a command in the root with a clean environment and this machine's way to the package registry.
in_root() {
  local settings=() name
  while IFS= read -r name; do
    case $name in
      PIP_CERT | PIP_FIND_LINKS | PIP_CONFIG_FILE) ;;
      PIP_* | http_proxy | https_proxy | no_proxy | HTTP_PROXY | HTTPS_PROXY | NO_PROXY) settings+=("$name=${!name}") ;;
    esac
  done < <(compgen -e)
  if [ -e "$root/usr/local/share/host-certificates.crt" ]; then
    settings+=(PIP_CERT=/usr/local/share/host-certificates.crt)
  fi
  chroot "$root" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb "${settings[@]}" \
    "$@" </dev/null
}

status=0
step() {
  local name=$1 begin
  shift
  echo "== $name"
  begin=$(date +%s)
  if in_root sh -c "cd $inside && $*"; then
    echo "== $name: fine after $(($(date +%s) - begin)) s"
  else
    echo "== $name: FAILED after $(($(date +%s) - begin)) s"
    status=1
  fi
}

if [ "$only" != test ]; then
  step "python3 run.py, the first time" python3 run.py
  step "python3 run.py, the second time" python3 run.py
fi
if [ "$only" != run ]; then
  step "python3 run.py test" python3 run.py test
fi
exit $status
