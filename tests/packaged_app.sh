#!/usr/bin/env bash
# The Debian package as a person meets it: install, start from the menu, chat, start again, open files, update, remove.
#
#   sudo tests/packaged_app.sh dist/kvscope_VERSION_amd64.deb [FOLDER]
#
# Needs root on Debian with xvfb, openbox, xdotool, wmctrl, imagemagick, sqlite3 and libglib2.0-bin. A user is made for it and
# removed again. FOLDER (default: a new temporary one) receives screenshots and logs. Prints one line a check, and how
# long what a person waits for took; exit code 1 if any check failed.
set -uo pipefail

package=$(realpath "$1")
out=${2:-$(mktemp -d)}
source_tree=$(cd "$(dirname "$0")/.." && pwd)
person=kvscope-check
home=/home/$person
data=$home/.local/share/kvscope
log=$data/kvscope.log
failed=0
mkdir -p "$out"
chmod 777 "$out"

check() { # check WORDS COMMAND...: one line, whatever the command says goes to the log
  local words=$1
  shift
  echo "== $words" >>"$out/checks.log"
  if "$@" >>"$out/checks.log" 2>&1; then
    echo "fine    $words"
  else
    echo "FAILED  $words"
    failed=1
    ps -u $person -o pid,stat,etimes,args >>"$out/checks.log"
  fi
}
as_person() {
  runuser -u $person -- env -i HOME=$home PATH=/usr/bin:/bin DISPLAY=${DISPLAY:-} XDG_RUNTIME_DIR=$home/run "$@"
}
now() { date +%s%N; }
waits() { # waits SECONDS COMMAND...: until the command succeeds
  local end=$(($(date +%s) + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt $end ] || return 1
    sleep 0.1
  done
}
window() { as_person xdotool search --onlyvisible --name "${1:-KVScope}"; }
no_window() { ! window; }
loads() { [ -e "$log" ] && [ "$(grep -c 'loaded ' "$log")" -ge "$1" ]; }
replied() { [ "$(sqlite3 "$data/chats.db" "select count(*) from messages where role = 'assistant' and status = 'done'")" -ge 1 ]; }
apps() { pgrep -u $person -x kvscope -c; }
seconds() { echo "$1" | awk '{printf "%.1f s", $1 / 1e9}'; }
shot() { as_person import -window root "$out/$1.png"; }
launch() { as_person gio launch /usr/share/applications/kvscope.desktop "$@" >>"$out/app.log" 2>&1 & }
close_window() {
  as_person wmctrl -c KVScope
  waits 10 no_window && waits 10 sh -c "! pgrep -u $person -x kvscope"
}
clean_up() {
  pkill -u $person 2>/dev/null
  sleep 1
  userdel -r $person 2>/dev/null
}
trap clean_up EXIT

useradd -m $person
install -d -o $person -m 700 $home/run
echo "== install"
check "the package installs" apt-get install -y --allow-downgrades "$package"
check "the menu entry is valid" desktop-file-validate /usr/share/applications/kvscope.desktop
cp "$source_tree/tests/data/tiny/llama.gguf" "$home/Kleines Modell ü.gguf"
check ".gguf files belong to it" sh -c "gio info -a standard::content-type '$home/Kleines Modell ü.gguf' | grep application/x-gguf"

echo "== self-test of a new user"
as_person kvscope --self-test
check "it passes" as_person kvscope --self-test
odd="$home/Programme – schön"
mkdir "$odd"
cp -r /opt/kvscope "$odd/"
check "it passes in a folder with spaces and other letters" as_person "$odd/kvscope/kvscope" --self-test
rm -rf "$odd" $home/.cache $home/.local

echo "== first start, from the menu entry"
runuser -u $person -- Xvfb -displayfd 1 -screen 0 1440x900x24 -nolisten tcp >"$out/display" 2>/dev/null &
waits 10 test -s "$out/display"
DISPLAY=:$(cat "$out/display")
export DISPLAY
as_person openbox >/dev/null 2>&1 &
begin=$(now)
launch
check "a window appears" waits 30 window
echo "        after $(seconds $(($(now) - begin)))"
as_person xdotool search --onlyvisible --name KVScope windowactivate --sync type --delay 15 "Name three colours."
sleep 1
shot compiling
as_person xdotool key Return
check "the model is loaded" waits 120 loads 1
check "a reply is written" waits 30 replied
echo "        after $(seconds $(($(now) - begin)))"
sleep 2
shot first-reply
check "it closes" close_window

echo "== second start"
kernels() { find $home/.cache/kvscope/kernels -type f -printf '%p %T@\n' | sort | md5sum; }
before=$(kernels)
begin=$(now)
launch
check "the model is loaded" waits 60 loads 2
echo "        after $(seconds $(($(now) - begin)))"
check "nothing was compiled" test "$before" = "$(kernels)"
check "the chat is still there" waits 5 window "Name three colours"
shot second-start

echo "== opening files"
launch "$home/Kleines Modell ü.gguf"
check "a second start hands its file over" waits 60 grep -q "loading $home/Kleines Modell ü.gguf" "$log"
sleep 3
check "and ends" test "$(apps)" -le 2
check "one window" test "$(window | wc -l)" -eq 1
shot handed-over
check "it closes" close_window

echo "== update"
newer=$out/newer
dpkg-deb -R "$package" "$newer"
sed -i 's/^Version: .*/&+update/' "$newer/DEBIAN/control"
dpkg-deb --root-owner-group -Znone --build "$newer" "$out/newer.deb" >/dev/null
rm -rf "$newer"
check "a newer version installs over it" apt-get install -y "$out/newer.deb"
launch
check "the chats are still there" waits 20 window "Name three colours"
sleep 2
shot updated
check "it closes" close_window
rm -f "$out/newer.deb"

echo "== removal"
check "it is removed" apt-get purge -y kvscope
check "nothing is left" sh -c '! ls -d /opt/kvscope /usr/bin/kvscope /usr/share/applications/kvscope.desktop'
check "the person's chats stay" test -s "$data/chats.db"
check "no error was logged" sh -c "! grep -E 'ERROR|CRITICAL|Traceback' '$log'"
cp "$log" "$out/"
exit $failed
