# The vocabulary of interop/run: prepare, start, the clients, and what is expected of their answers. Sourced, not run.

unset "${!WEIR_@}" # what they say is meant for another Weir
unset GOGC         # and this for compilers and tests
password='correct horse battery staple'
checks=0
pids=()       # background clients of ours
weir_pid=''   # the instance
began=$SECONDS

# --- preparing -----------------------------------------------------------------------------------------------------

# install CMD PACKAGE: by name from the distribution, unless the command is there.
missing=()
install() { command -v "$1" >/dev/null || missing+=("$2"); }

# fetch NAME LIST COMMAND…: $fetched is a directory that COMMAND, run in it, has filled with what LIST (a file, or a text) names. It is kept
# outside of the checkout, so that a clean clone fetches nothing again that it names in the same words.
fetch() {
  local name=$1 list=$2 all=${XDG_CACHE_HOME:-$HOME/.cache}/weir-interop told
  shift 2
  fetched=$all/$name-$({ [ -f "$list" ] && cat "$list" || printf %s "$list"; } | sha256sum | cut -c 1-16)
  mkdir -p "$all"
  told=$(
    exec 9>"$all/lock" && flock 9 # two scripts may want the same
    [ ! -d "$fetched" ] || exit 0
    rm -rf "$fetched.new" && mkdir "$fetched.new" && (cd "$fetched.new" && "$@" 2>&1 9>&-) && mv "$fetched.new" "$fetched"
  ) || fail "$name" "$told"
}

# jars and wheels are commands for fetch: what a pom depends on, and Python packages.
jars() { mvn -q -B -f "$1" dependency:copy-dependencies -DoutputDirectory="$PWD" -DincludeScope=runtime; }
wheels() { python3 -m pip install -q --root-user-action=ignore --target . "$@"; }

# install_modules puts what package-lock.json names beside the scripts.
install_modules() {
  local dir
  dir=$(cd "$here/../interop" && pwd)
  fetch modules "$dir/package-lock.json" node_modules_of "$dir"
  [ -L "$dir/node_modules" ] || rm -rf "$dir/node_modules"
  ln -sfn "$fetched/node_modules" "$dir/node_modules"
}
node_modules_of() { cp "$1/package.json" "$1/package-lock.json" . && npm ci --silent --no-audit --no-fund; }

prepare() {
  install mosquitto_pub mosquitto-clients
  install mosquitto_sub mosquitto-clients
  install curl curl
  install jq jq
  install chromium chromium
  install pip3 python3-pip
  if [ ${#missing[@]} -gt 0 ]; then
    "$here/../tools/apt" "${missing[@]}"
  fi
  install_modules
  work=$(mktemp -d "${TMPDIR:-/tmp}/weir-interop.XXXXXX")
  trap 'tidy $?' EXIT
  trap 'exit 130' INT TERM
  if [ -n "${WEIR:-}" ]; then
    binary=$WEIR
  else
    binary=$work/weir
    (cd "$here/.." && CGO_ENABLED=0 go build -o "$binary" .)
  fi
  (cd "$here/.." && go run ./interop/certs "$work/tls")
  cat >"$work/weir.yaml" <<YAML
data_dir: $work/data
ingest: {commands: true}
listeners: {api: "127.0.0.1:0", ingest: "127.0.0.1:0", mqtt: "127.0.0.1:0", metrics: "127.0.0.1:0"}
governance: {ingest_messages_per_second: 20, ingest_burst: 256}
logging: {level: info, format: text}
YAML
  mkdir "$work/conf.d"
  cat >"$work/conf.d/tls.yaml" <<YAML
listeners: {api_tls: "127.0.0.1:0", ingest_tls: "127.0.0.1:0", mqtts: "127.0.0.1:0", mqtt_ws: "127.0.0.1:0", mqtt_wss: "127.0.0.1:0"}
tls: {cert_file: $work/tls/gw.pem, key_file: $work/tls/gw.key, client_ca_file: $work/tls/ca.pem}
YAML
  began=$SECONDS
}

# tidy ends what this run has started, and nothing else.
tidy() {
  local p
  for p in "${pids[@]}" $weir_pid; do kill -KILL "$p" 2>/dev/null || true; done
  wait 2>/dev/null || true
  if [ "$1" -ne 0 ] && [ -f "$work/log" ]; then
    printf '\n--- the server said ---\n' >&2
    tail -n 200 "$work/log" >&2
  fi
  rm -rf "$work"
}

# --- the instance --------------------------------------------------------------------------------------------------

weir() { "$binary" "$@" --config "$work/weir.yaml"; }

start_weir() {
  : >"$work/out" # of the instance before, whose ports are others'
  "$binary" run --config "$work/weir.yaml" >"$work/out" 2>>"$work/log" &
  weir_pid=$!
  await "the instance is ready" grep -q '^  socket ' "$work/out"
  api=$(awk '$1 == "api" {print $2}' "$work/out")
  ingest=$(awk '$1 == "ingest" {print $2}' "$work/out")
  metrics=$(awk '$1 == "metrics" {print $2}' "$work/out")
  mqtt_host=127.0.0.1
  mqtt_port=$(port_of mqtt)
}

# port_of LISTENER prints the port that it is on.
port_of() { awk -v l="$1" '$1 == l {sub(/.*:/, "", $2); print $2}' "$work/out"; }

kill_weir() {
  kill -KILL "$weir_pid"
  wait "$weir_pid" 2>/dev/null || true
  weir_pid=''
}

stop_weir() {
  local ended=0
  kill -TERM "$weir_pid"
  wait "$weir_pid" || ended=$?
  weir_pid=''
  [ "$ended" = 0 ] || fail "SIGTERM: exit code $ended"
}

start_demo() {
  demo_began=$SECONDS
  "$binary" demo >"$work/demo" 2>>"$work/log" &
  demo_pid=$!
  pids+=("$demo_pid")
  await "the demo has begun" grep -q '^TIME' "$work/demo"
  demo_dir=$(awk '$1 == "data" {print $2}' "$work/demo")
}

# demo_commands prints the commands that the demo prints, in its order.
demo_commands() {
  # tail goes on until it is stopped
  awk '/^Try it/ {on = 1} /devices send/ {on = 0} on && /^  / {print}' "$work/demo" | sed 's/^  \(.* tail .*\)/timeout 5 \1 || true/'
  sed -n 's/^Where every message ended: //p' "$work/demo"
}

stop_demo() {
  local ended=0
  kill -TERM "$demo_pid"
  wait "$demo_pid" || ended=$?
  [ "$ended" = 0 ] || fail "SIGTERM to the demo: exit code $ended"
}

# --- telling -------------------------------------------------------------------------------------------------------

section() { printf '\n%s\n' "$1"; }
passed() { checks=$((checks + 1)); printf '  ok  %s\n' "$1"; }

fail() {
  printf 'FAIL  %s\n' "$1"
  shift
  for what in "$@"; do printf '      %s\n' "$what"; done
  exit 1
}

finish() { printf '\n%d checks passed in %d s\n' "$checks" $((SECONDS - began)); }

# await WHAT COMMAND…: until it succeeds, for 20 s (PATIENCE) at most.
await() {
  local what=$1 until=$((SECONDS + ${PATIENCE:-20}))
  shift
  until "$@"; do
    [ $SECONDS -lt $until ] || fail "$what: not within ${PATIENCE:-20} s"
    [ -z "$weir_pid" ] || kill -0 "$weir_pid" 2>/dev/null || fail "$what: the instance has ended"
    sleep 0.05
  done
}

# --- clients -------------------------------------------------------------------------------------------------------

# gql AREA TOKEN QUERY [VARIABLES] leaves the answer in $work/answer and the status in $code.
gql() {
  local area=$1 token=$2 query=$3 variables=${4:-null} auth=()
  [ -z "$token" ] || auth=(-H "Authorization: Bearer $token")
  jq -nc --arg q "$query" --argjson v "$variables" '{query: $q, variables: $v}' >"$work/query"
  code=$(curl -sS -o "$work/answer" -w '%{http_code}' -H 'Content-Type: application/json' "${auth[@]}" \
    --data-binary @"$work/query" "http://$api/api/$area/graphql")
}

# login EMAIL prints an identity token; sign_in EMAIL TENANT an access token.
login() {
  gql user-management '' 'mutation($e: String!, $p: String!) { login(email: $e, password: $p) { identityToken } }' \
    "$(jq -nc --arg e "$1" --arg p "$password" '{e: $e, p: $p}')"
  jq -er .data.login.identityToken "$work/answer" || fail "login" "$(cat "$work/answer")" >&2
}

sign_in() {
  local identity
  identity=$(login "$1")
  gql user-management '' 'mutation($i: String!, $t: String!) { selectTenant(identityToken: $i, tenant: $t) { accessToken } }' \
    "$(jq -nc --arg i "$identity" --arg t "$2" '{i: $i, t: $t}')"
  jq -er .data.selectTenant.accessToken "$work/answer" || fail "selectTenant" "$(cat "$work/answer")" >&2
}

# http METHOD PATH [BODY] at the HTTP transport leaves $code, $work/headers and $work/body.
http() {
  local method=$1 path=$2 data=()
  [ $# -lt 3 ] || { printf %s "$3" >"$work/sending"; data=(--data-binary @"$work/sending"); }
  code=$(curl -sS -X "$method" -o "$work/body" -D "$work/headers" -w '%{http_code}' "${data[@]}" "http://$ingest$path")
}

# jsmqtt VERSION TENANT DEVICE SECRET STEPS BODY [USER]: a session of mqtt.js. STEPS is a jq expression over $body. With a
# USER the secret is a password, else it is the access token. $via is another way than plain MQTT, as a URL. The lines are
# in $work/session, merged in $work/answer.
jsmqtt() {
  local user=$4 pass=''
  [ $# -lt 7 ] || { user=$7 pass=$4; }
  NODE_EXTRA_CA_CERTS=$work/tls/ca.pem node "$here/mqtt.mjs" "$(jq -nc --arg url "${via:-mqtt://$mqtt_host:$mqtt_port}" --argjson version "$1" --arg id "weir:$2:$3" \
    --arg user "$2:$user" --arg pass "$pass" --arg body "$6" \
    '{url: $url, version: $version, clientId: $id, username: $user, steps: '"$5"'} + if $pass == "" then {} else {password: $pass} end')" \
    >"$work/session"
  jq -sc add "$work/session" >"$work/answer"
}

# stream NAME FIELD AREA TOKEN QUERY follows a subscription in the background, into $work/NAME.jsonl.
stream() {
  : >"$work/$1.jsonl"
  node "$here/stream.mjs" "ws://$api/api/$3/graphql" "$4" "$5" >"$work/$1.jsonl" &
  pids+=($!)
}

# setup_link prints the first link of the setup page, as the instance has printed it.
setup_link() { sed -n 's|^  \(http://.*/setup#.*\)|\1|p' "$work/out" | head -n 1; }

now_ms() { date +%s%3N; }

# script SCRIPT ARG…: a script of ours. Each line it writes is a check that holds, one that begins with FAIL is the last.
script() {
  local line ended=0
  node "$@" >"$work/scripted" 2>"$work/complained" || ended=$?
  while IFS= read -r line; do
    case $line in "FAIL "*) fail "${line#FAIL }" "$(sed '0,/^FAIL /d' "$work/scripted")" ;; esac
    passed "$line"
  done <"$work/scripted"
  [ "$ended" = 0 ] || fail "$1 ended with $ended" "$(cat "$work/complained")"
}

# browse SCRIPT ARG…: a script in a real browser. Pictures of each state go to $SHOTS.
browse() { SHOTS=${SHOTS:-$here/../bin/screenshots} script "$here/../interop/$1" "$(command -v chromium)" "${@:2}"; }

# reading METRIC VALUE TIME is an event; with_token TOKEN EVENT puts a credential into its body.
reading() { printf '{"eventType":"Measurement","occurredTime":"%s","payload":{"entries":[{"measurements":{"%s":"%s"}}]}}' "$3" "$1" "$2"; }
with_token() { jq -c --arg t "$1" '{credentialType: "ACCESS_TOKEN", credentialId: $t} + .' <<<"$2"; }

# --- expecting -----------------------------------------------------------------------------------------------------

# is WHAT FILTER [jq arguments]: the filter is true of the last answer.
is() {
  local what=$1 filter=$2
  shift 2
  jq -e "$@" "$filter" "$work/answer" >/dev/null 2>"$work/jq" || fail "$what" "answer: $(cat "$work/answer")" "wanted: $filter" "$(cat "$work/jq")"
  passed "$what"
}

# is_text WHAT TEXT FILE: the file holds the text; is_empty WHAT FILE: it holds nothing.
is_text() {
  grep -qF -- "$2" "$work/$3" || fail "$1" "got: $(cat "$work/$3")" "wanted: $2"
  passed "$1"
}

is_empty() {
  [ -f "$work/$2" ] && ! [ -s "$work/$2" ] || fail "$1" "got: $(cat "$work/$2")"
  passed "$1"
}

status() {
  [ "$code" = "$2" ] || fail "$1" "status: $code" "$(cat "$work/body" 2>/dev/null)"
  passed "$1"
}

header() {
  grep -qi "^$2: $3"$'\r'"\?$" "$work/headers" || fail "$1" "$(cat "$work/headers")"
  passed "$1"
}

no_header() {
  ! grep -qi "^$2:" "$work/headers" || fail "$1" "$(cat "$work/headers")"
  passed "$1"
}

# fails CODE WHAT COMMAND…: it ends with that exit code.
fails() {
  local want=$1 what=$2 got=0
  shift 2
  "$@" >"$work/told" 2>&1 || got=$?
  [ "$got" = "$want" ] || fail "$what" "exit code $got" "$(cat "$work/told")"
  passed "$what"
}

has_lines() { [ "$(wc -l <"$work/$1.jsonl")" -ge "$2" ]; }
await_lines() { await "$2 lines of the stream $1" has_lines "$1" "$2"; }

is_line() {
  sed -n "$2p" "$work/$1.jsonl" >"$work/answer"
  is "$3" "$4"
}

no_lines() {
  ! [ -s "$work/$1.jsonl" ] || fail "$2" "$(cat "$work/$1.jsonl")"
  passed "$2"
}

metric_is() { curl -sS "http://$metrics/metrics" | grep -qxF "$1 $2"; }
await_metric() { await "the metric $1 is $2" metric_is "$1" "$2"; }

# await_applied: everything acknowledged so far is applied.
is_applied() { weir status --json | jq -e '.log.applied >= .log.last' >/dev/null; }
await_applied() { await "everything acknowledged is applied" is_applied; }
