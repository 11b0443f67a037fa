# The vocabulary of packaging/test, on top of interop/lib.sh: roots, packages, and what is expected of them. Sourced, not run.
# shellcheck shell=bash disable=SC2034,SC2154

root=''         # of Debian
newer=999.0.0   # version of the package that is upgraded to
running=()      # prefix of commands beside the running instance: chroot, user, program

# --- preparing -----------------------------------------------------------------------------------------------------

prepare() {
  install_tool debootstrap debootstrap
  install_tool buildah buildah
  install_tool rpm rpm
  install_tool shellcheck shellcheck
  install_tool curl curl
  install_tool jq jq
  install_tool chromium chromium
  install_tool npm npm
  [ -x /bin/busybox ] && ! ldd /bin/busybox >/dev/null 2>&1 || missing+=(busybox-static)
  [ -f /etc/ssl/certs/ca-certificates.crt ] || missing+=(ca-certificates)
  if [ ${#missing[@]} -gt 0 ]; then
    "$here/../tools/apt" "${missing[@]}"
  fi
  install_modules
  umask 022
  work=$(mktemp -d "${TMPDIR:-/tmp}/weir-packages.XXXXXX")
  root=$work/root
  trap 'undo $?' EXIT
  trap 'exit 130' INT TERM
  trap 'echo "packaging: line $LINENO of ${BASH_SOURCE[0]##*/} failed: $BASH_COMMAND" >&2' ERR
  began=$SECONDS
}

# install_tool COMMAND PACKAGE: not "install", which is a program that the checks need.
install_tool() { command -v "$1" >/dev/null || missing+=("$2"); }
unset -f install

undo() {
  local p
  for p in "${pids[@]}"; do kill -KILL -- "-$p" 2>/dev/null || true; done
  [ -z "$weir_pid" ] || kill -KILL "$weir_pid" 2>/dev/null || true
  wait 2>/dev/null || true
  # debootstrap mounts some itself, and leaves them when it is ended.
  umount -R "$root/proc" "$root/sys" 2>/dev/null || true
  weir_pid='' pids=()
  tidy "$1"
}

# begin_root DIR makes a Debian root in the background; await_root waits for it, and puts the packages in.
begin_root() {
  # In a session of its own, so that it can be ended with all its children.
  setsid "$here/../tools/debian" "$1" systemd,procps >"$work/debootstrap" 2>&1 &
  debootstrap_pid=$!
  pids+=("$debootstrap_pid")
}

await_root() {
  local since=$SECONDS
  wait "$debootstrap_pid" || fail "debootstrap" "$(tail -n 20 "$work/debootstrap")"
  pids=()
  mount -t proc proc "$root/proc"
  ln "$old_deb" "$root/old.deb"
  ln "$work"/new/*.deb "$root/new.deb"
  passed "made with debootstrap, from the mirror of this machine; waited $((SECONDS - since)) s"
}

# --- packages ------------------------------------------------------------------------------------------------------

build_packages() {
  section "Packages"
  OUT=$work/old "$here/dist" >"$work/told" 2>&1 || fail "packaging/dist" "$(cat "$work/told")"
  export OUT=$work/old # for the image
  old_deb=$(echo "$work"/old/*_amd64.deb)
  passed "deb, rpm, apk, ipk for amd64, arm64, armv7: $(wc -l <"$work/old/SHA256SUMS") files"
  VERSION=$newer ARCHES=amd64 FORMATS='deb rpm' OUT=$work/new "$here/dist" >"$work/told" 2>&1 || fail "packaging/dist" "$(cat "$work/told")"
  (cd "$work/old" && sha256sum --quiet --check SHA256SUMS >"$work/told" 2>&1) || fail "SHA256SUMS" "$(cat "$work/told")"
  passed "SHA256SUMS holds"
}

# versions_are_ordered: a package manager takes each of these for newer than the one before.
versions_are_ordered() {
  local format version got before
  for format in deb rpm ipk apk; do
    before=''
    for version in 0.1.0-dev 0.1.0-rc.1 0.1.0-rc.2-3-gabc123 0.1.0 0.1.0-5-gabc123 0.1.0-12-gdef456-dirty v0.1.1; do
      # dpkg has no notion of apk's suffixes; the order of those is that of the alphabet's _p after nothing after _pre and _rc.
      got=$(VERSION=$version "$here/version" "$format" | sed 's/_\(pre\|rc\)/~\1/; s/_p/+p/')
      [ -z "$before" ] || dpkg --compare-versions "$before" lt "$got" || fail "versions of $format" "$got does not come after $before"
      before=$got
    done
  done
  passed "versions are ordered: $(for version in 0.1.0-rc.1 0.1.0 0.1.0-5-gabc123; do VERSION=$version "$here/version" deb; done | paste -sd' ')"
}

unpack_packages() {
  mkdir -p "$work"/{rpm,apk,ipk,ipk.control,ipk.outer,apk.control,scripts}
  dpkg-deb --extract "$old_deb" "$work/deb"
  dpkg-deb --control "$old_deb" "$work/deb.control"
  rpm2archive -n <"$(echo "$work"/old/*.x86_64.rpm)" | tar -xf - -C "$work/rpm" --no-same-owner
  tar -xzf "$(echo "$work"/old/*x86_64.apk)" -C "$work/apk" 2>/dev/null # apk's own headers are unknown to tar
  tar -xzf "$(echo "$work"/old/*_x86_64.ipk)" -C "$work/ipk.outer"
  tar -xzf "$work/ipk.outer/data.tar.gz" -C "$work/ipk"
  tar -xzf "$work/ipk.outer/control.tar.gz" -C "$work/ipk.control"
  local s
  for s in preinst postinst prerm postrm; do
    cp "$work/deb.control/$s" "$work/scripts/deb.$s"
    cp "$work/ipk.control/$s" "$work/scripts/ipk.$s"
  done
  for s in pre-install post-install pre-upgrade post-upgrade pre-deinstall post-deinstall; do cp "$work/apk/.$s" "$work/scripts/apk.$s"; done
  for s in prein postin preun postun; do rpm -qp --qf "%{${s^^}}\n" "$work"/old/*.x86_64.rpm >"$work/scripts/rpm.$s"; done
}

printed() { "$work/deb/usr/bin/weir" service print --init "$1" --binary /usr/bin/weir; }

rpm_contents() { rpm -qp --qf '[%{FILEMODES:perms} %{FILEUSERNAME}:%{FILEGROUPNAME} %{FILENAMES} %{FILEFLAGS:fflags}\n]' "$1" | without_share | sed 's/ *$//'; }

# tar_contents lists a tar: the scripts of an apk, whose names begin with a dot, are not among its files.
tar_contents() { tar -tvzf "$1" 2>/dev/null | awk '{sub(/\//, ":", $2); sub(/^\.\//, "", $6); sub(/\/$/, "", $6); if ($6 !~ /^(\..*)?$/) print $1, $2, "/" $6}' | without_share; }
ipk_contents() { tar -xzOf "$1" ./data.tar.gz >"$work/data.tar.gz" && tar_contents "$work/data.tar.gz"; }

# without_share leaves out what changes with the commands that there are: completions and manual.
without_share() { grep -Ev ' /(usr/share.*|usr|usr/bin|usr/lib.*/system|usr/lib/systemd|usr/lib|etc|etc/init.d|lib.*/keep.d|lib/upgrade|lib|var|var/lib)$' | LC_ALL=C sort -k3; }

apk_machines() { local f; for f in "$@"; do tar -xzOf "$f" .PKGINFO 2>/dev/null | sed -n 's/^arch = //p'; done; }
ipk_machines() { local f; for f in "$@"; do tar -xzOf "$f" ./control.tar.gz | tar -xzO ./control | sed -n 's/^Architecture: //p'; done; }

machines_are() {
  local what=$1 want=$2 got
  shift 2
  got=$("$@" | sort | tr '\n' ' ')
  [ "$got" = "$want " ] || fail "$what" "got: $got" "wanted: $want"
  passed "$what: $want"
}

# --- roots ---------------------------------------------------------------------------------------------------------

in_root() { chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }

# as_weir COMMAND…: as the unit would run it: its user, no privilege to be gained, its umask.
as_weir() {
  in_root setpriv --reuid weir --regid weir --init-groups --no-new-privs --bounding-set -all --inh-caps -all \
    sh -c 'umask 0077 && cd /var/lib/weir && exec "$@"' sh "$@"
}

rpm_in_root() { rpm --root "$root" --dbpath /var/lib/rpm-of-the-test "$@"; }

# exec_start is the command line of the installed unit.
exec_start() { sed -n 's/^ExecStart=//p' "$root/usr/lib/systemd/system/weir.service"; }

weir() { "${running[@]}" "$@"; }

start_unit() {
  local user
  user=$(sed -n 's/^User=//p' "$root/usr/lib/systemd/system/weir.service")
  [ "$user" = weir ] || fail "the unit's user" "$user"
  running=(as_weir weir --config /etc/weir/weir.yaml)
  local line
  read -ra line <<<"$(exec_start)"
  launch chroot "$root" env -i PATH=/usr/bin:/bin setpriv --reuid "$user" --regid "$user" --init-groups --no-new-privs --bounding-set -all --inh-caps -all \
    sh -c 'umask 0077 && cd /var/lib/weir && exec "$@"' sh "${line[@]}"
}

# launch COMMAND… starts an instance, and waits until it has printed its addresses.
launch() {
  : >"$work/out" # output of the instance before
  "$@" >"$work/out" 2>>"$work/log" &
  weir_pid=$!
  await "the instance is ready" grep -q '^  socket ' "$work/out"
  api=$(awk '$1 == "api" {print $2}' "$work/out")
  ingest=$(awk '$1 == "ingest" {print $2}' "$work/out")
}

# data_of_before ARCHIVE END puts the data directory of an earlier version in the place of this one.
data_of_before() {
  rm -rf "$root/var/lib/weir"
  in_root install -d -m 0750 -o weir -g weir /var/lib/weir
  tar -xzf "$1" -C "$root/var/lib/weir" --strip-components=1 --no-same-owner "$2"
  in_root chown -R weir:weir /var/lib/weir
}

# openwrt_root makes of the unpacked ipk a root that its scripts run in: busybox, and the little of OpenWrt that an init
# script is read by.
openwrt_root() {
  local r=$work/ipk tool
  mkdir -p "$r"/{bin,tmp,dev,root}
  cp /bin/busybox "$r/bin/busybox"
  for tool in sh grep sed mkdir chown chmod echo; do ln -sf busybox "$r/bin/$tool"; done
  printf 'root:x:0:0:root:/root:/bin/sh\n' >"$r/etc/passwd"
  printf 'root:x:0:\n' >"$r/etc/group"
  cat >"$r/etc/rc.common" <<'RC'
procd_open_instance() { : >/tmp/params; }
procd_set_param() { echo "$*" >>/tmp/params; }
procd_close_instance() { sed -n 's/^command //p' /tmp/params >/tmp/command; }
. "$1"
"$2_service"
RC
  IPKG_INSTROOT=$r sh "$work/ipk.control/preinst"
  IPKG_INSTROOT=$r sh "$work/ipk.control/postinst" configure
}

# start_openwrt runs the init script, and then the command that it gave to procd.
start_openwrt() {
  local r=$work/ipk line user
  cat >>"$r/etc/weir/weir.yaml" <<'YAML'
listeners: {api: "127.0.0.1:0", ingest: "127.0.0.1:0", mqtt: "127.0.0.1:0", metrics: "127.0.0.1:0"}
YAML
  chroot "$r" /bin/sh /etc/rc.common /etc/init.d/weir start >"$work/told" 2>&1 || fail "the init script" "$(cat "$work/told")"
  user=$(sed -n 's/^user //p' "$r/tmp/params")
  [ "$(stat -c %a:%u "$r/srv/weir")" = "750:$(id_in "$r" passwd)" ] || fail "the data directory" "$(ls -ldn "$r/srv/weir")"
  read -ra line <"$r/tmp/command"
  running=(chroot --userspec="$(id_in "$r" passwd):$(id_in "$r" group)" --groups='' "$r" /usr/bin/weir --config /etc/weir/weir.yaml)
  launch env -i PATH="$PATH" chroot --userspec="$(id_in "$r" passwd):$(id_in "$r" group)" --groups='' "$r" "${line[@]}"
}

# id_in ROOT passwd|group is the number of weir.
id_in() { sed -n 's/^weir:[^:]*:\([0-9]*\):.*/\1/p' "$1/etc/$2"; }

# --- the image -----------------------------------------------------------------------------------------------------

docker_file() { tar -xzOf "$(echo "$work"/old/*.docker.tar.gz)" "./$1"; }
image_config() { docker_file "$(docker_file manifest.json | jq -r '.[0].Config')" >"$work/answer"; }
image_layer() { docker_file "$(docker_file manifest.json | jq -r '.[0].Layers[0]')"; }
image_size() { image_layer | wc -c | awk '{printf "%.0f MiB", $1 / 1048576}'; }
image_contents() { image_layer | tar -tv --numeric-owner | awk '{sub(/\//, ":", $2); print $1, $2, "/" $6}' | LC_ALL=C sort -k3; }

oci_file() { tar -xOf "$(echo "$work"/old/*.oci.tar)" "./$1"; }
blob() { oci_file "blobs/sha256/${1#sha256:}"; }
oci_config() { blob "$(blob "$(oci_file index.json | jq -r '.manifests[0].digest')" | jq -r .config.digest)" >"$work/answer"; }

# start_image runs the image as a container engine would: its root, its user, its environment, its directory, its command.
start_image() {
  mkdir "$work/image"
  image_layer | tar -x --numeric-owner -C "$work/image"
  touch "$work/image.began"
  local user line variables
  user=$(jq -r .config.User "$work/answer")
  mapfile -t line < <(jq -r '.config.Entrypoint + .config.Cmd | .[]' "$work/answer")
  mapfile -t variables < <(jq -r '.config.Env[]' "$work/answer")
  variables+=(WEIR_LISTENERS_API=127.0.0.1:0 WEIR_LISTENERS_INGEST=127.0.0.1:0 WEIR_LISTENERS_MQTT=127.0.0.1:0 WEIR_LISTENERS_METRICS=127.0.0.1:0)
  running=(env -i PATH="$PATH" "${variables[@]}" chroot --userspec="$user" --groups='' "$work/image" /weir)
  launch env -i PATH="$PATH" "${variables[@]}" chroot --userspec="$user" --groups='' "$work/image" "${line[@]}"
}

# --- expecting -----------------------------------------------------------------------------------------------------

# is_clean WHAT COMMAND…: it ends with 0; what it says is shown only otherwise.
is_clean() {
  local what=$1
  shift
  "$@" >"$work/told" 2>&1 || fail "$what" "$(cat "$work/told")"
  passed "$what"
}

same() {
  local got
  got=$(diff "$2" "$3") || fail "$1" "$got"
  passed "$1"
}

# is_mode WHAT MODE OWNER PATH
is_mode() {
  local got
  got=$(in_root stat -c '%a %U:%G' "$4")
  [ "$got" = "$2 $3" ] || fail "$1: $4" "got: $got" "wanted: $2 $3"
  passed "$1: $2 $3 $4"
}

# send_reading DEVICE TOKEN VALUE at the HTTP transport of the tenant acme.
send_reading() {
  http POST /weir/acme/events "$(jq -nc --arg t "$2" --arg v "$3" '{credentialType: "ACCESS_TOKEN", credentialId: $t, eventType: "Measurement",
    payload: {entries: [{measurements: {temp: $v}}]}}')"
  [ "$code" = 202 ] || fail "a reading over HTTP" "status: $code" "$(cat "$work/body")"
}

# await_reading VALUE [EMAIL]: a query in the tenant acme returns it.
await_reading() {
  local access
  access=$(sign_in "${2:-root@example.org}" acme)
  await "the reading $1" is_seen "$access" "$1"
}

is_seen() {
  gql event-management "$1" '{ measurementEvents(criteria: {pageNumber: 1, pageSize: 100}) { results { value } } }'
  jq -e --argjson v "$2" 'any(.data.measurementEvents.results[]; .value == $v)' "$work/answer" >/dev/null
}
