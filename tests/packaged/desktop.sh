# What the steps do with their hands: a person, a display with a window manager, starting, typing, looking, closing.

results=/results
failed=0

check() { # check WORDS COMMAND...: one line, whatever the command says goes to the log
  local words=$1
  shift
  echo "== $words" >>"$results/checks.log"
  if "$@" >>"$results/checks.log" 2>&1; then
    echo "fine    $words"
  else
    echo "FAILED  $words"
    failed=1
    ps -u "$person" -o pid,stat,etimes,args >>"$results/checks.log" 2>&1
    [ -z "${DISPLAY:-}" ] || shot "failed-$(grep -c . "$results/checks.log")"
  fi
}
within() { # within LIMIT SECONDS WORDS: a figure and what it may be
  echo "        $3 after $2 s, at most $1 s"
  check "$3 in time" awk "BEGIN { exit !($2 <= $1) }"
}
not() { ! "$@"; }
now() { date +%s.%N; }
since() { awk "BEGIN { printf \"%.2f\", $(now) - $1 }"; }
waits() { # waits SECONDS COMMAND...: until the command succeeds
  local end=$(($(date +%s) + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt $end ] || return 1
    sleep 0.05
  done
}

new_person() { # new_person NAME HOME: a new account, with nothing in its home folder, on a display of its own
  person=$1
  home=$2
  data=$home/.local/share/kvscope
  log=$data/kvscope.log
  kernels=$home/.cache/kvscope/kernels
  useradd --home-dir "$home" --create-home --shell /bin/sh "$person"
  install -d -o "$person" -m 700 "/run/$person"
}
as_person() {
  setpriv --reuid "$person" --regid "$person" --init-groups \
    env -i HOME="$home" PATH=/usr/bin:/bin LANG="${LANG-C.UTF-8}" ${DISPLAY:+DISPLAY="$DISPLAY"} \
    XDG_RUNTIME_DIR="/run/$person" "$@"
}
start_desktop() {
  as_person Xvfb -displayfd 1 -screen 0 1440x900x24 -nolisten tcp >"/tmp/display-$person" 2>/dev/null &
  waits 10 test -s "/tmp/display-$person"
  DISPLAY=:$(cat "/tmp/display-$person")
  as_person openbox >/dev/null 2>&1 &
  waits 10 as_person wmctrl -m
}
shot() { as_person import -window root png:- >"$results/$1.png"; }

launch() { as_person gio launch /usr/share/applications/kvscope.desktop >>"$results/app.log" 2>&1 & }
window() { as_person xdotool search --onlyvisible --name "${1:-KVScope}"; }
no_window() { not window; }
no_app() { not pgrep -u "$person" -x kvscope; }
in_front() { as_person xdotool getactivewindow getwindowname | grep -q KVScope; }
type_text() {
  as_person xdotool search --onlyvisible --name KVScope windowactivate --sync
  as_person xdotool type --delay 5 "$1"
}
press() { as_person xdotool key "$@"; }
say() { type_text "$1" && press Return; }
close_window() {
  as_person wmctrl -c KVScope
  waits 10 no_window && waits 10 no_app
}

logged() { [ -e "$log" ] && [ "$(grep -c "$1" "$log")" -ge "$2" ]; }
sql() { as_person sqlite3 -readonly "$data/chats.db" "$1"; } # never as root: files of its own would lock the person out
questions() { [ "$(sql "select count(*) from messages where role = 'user'")" -eq "$1" ]; }
streaming() { [ "$(sql "select count(*) from pieces where length(text) > ${1:-0}")" -ge 1 ]; }
replies() { # that ended by themselves or by their limit
  [ "$(sql "select count(*) from messages where role = 'assistant' and status in ('done', 'length')")" -ge "$1" ]
}
chats() { sql "select c.title, m.seq, m.role, m.status, m.text, hex(m.ids) from messages m join chats c on c.id = m.chat order by m.seq"; }
first_token_since() { # how long after a moment the last reply, which ended just now, had its first token
  awk "BEGIN { printf \"%.2f\", $(now) - $1 - $(sql "select json_extract(stats, '\$.gen_s') from messages
    where role = 'assistant' order by seq desc limit 1") }"
}
kernel_files() { find "$kernels" -type f -printf '%P %T@ %s\n' | sort; }
