#!/usr/bin/env bash
# The steps of tests/packaged_app.sh, inside its fresh root: first the package alone, then a desktop around it, an older
# version and the update, a new person's first and second start, files from the file manager, removal.
set -uo pipefail
cd /packaged
. ./desktop.sh

FIRST_S=40 # from the first start to the first token of the first reply, compiling the kernels in between
SECOND_S=3
DESKTOP="procps xvfb openbox xdotool wmctrl imagemagick xdg-utils libglib2.0-bin shared-mime-info desktop-file-utils sqlite3 jq"
application=/usr/share/applications/kvscope.desktop

install_deb() { apt-get install -y --no-install-recommends "$1"; }

alone() {
  echo "== the package alone on a bare machine"
  new_person first "/home/first"
  check "the package index is read" apt-get update
  check "the package installs" install_deb ./new.deb
  check "every library is there" not sh -c "find /opt/kvscope -name '*.so*' -exec env LD_LIBRARY_PATH=/opt/kvscope/_internal ldd {} + | grep 'not found'"
  check "the self-test passes for a new user" as_person kvscope --self-test
  check "it passes in the plainest locale" plainest_self_test
  check "licences of all components are inside" sh -c "test -s /opt/kvscope/LICENSE && ! find /opt/kvscope/licences -empty | grep ."
  check "the model's licence is inside" grep -q 'Apache License' /opt/kvscope/licences/model-SmolLM2-135M-Instruct/LICENSE
  check "it is removed" apt-get purge -y kvscope
  check "nothing is left of it" nothing_left
}
plainest_self_test() { LANG=C as_person kvscope --self-test; }
nothing_left() {
  [ ! -e /opt/kvscope ] && [ ! -L /usr/bin/kvscope ] && not grep -rq kvscope /usr/share/applications /usr/share/mime \
    /usr/share/icons /usr/share/doc/kvscope
}

desktop() {
  echo "== a desktop around it"
  # shellcheck disable=SC2086
  check "a display, a window manager and desktop tools install" apt-get install -y --no-install-recommends $DESKTOP
}

update() {
  [ -e older.deb ] || return 0
  echo "== an update over an older version"
  # A build of the same version number is given a lower one, so that dpkg sees an update.
  local older version
  older=$(dpkg-deb -f older.deb Version)
  version=$(dpkg-deb -f new.deb Version)
  if ! dpkg --compare-versions "$older" lt "$version"; then
    dpkg-deb -R older.deb /tmp/older
    sed -i "s/^Version: .*/Version: $version~older/" /tmp/older/DEBIAN/control
    dpkg-deb --root-owner-group -Znone --build /tmp/older older.deb >/dev/null
    rm -rf /tmp/older
  fi
  new_person keeper "/home/keeper"
  start_desktop
  check "the older version installs" install_deb ./older.deb
  launch
  check "its window appears" waits 30 window
  say "Name three colours."
  check "it writes a reply" waits 180 replies 1
  press ctrl+n
  say "Name three animals."
  check "and one in a second chat" waits 60 replies 2
  press ctrl+shift+l
  press ctrl+shift+l
  check "its settings are changed" waits 5 grep -q '"theme": "dark"' "$data/settings.json"
  press ctrl+i
  type_text "A draft that nobody sent"
  sleep 1
  shot older-version
  check "it closes" close_window
  chats >/tmp/chats-before
  cp "$data/settings.json" /tmp/settings-before
  check "the new version installs over it" install_deb ./new.deb
  check "it is the new version" test "$(dpkg-query -W -f '${Version}' kvscope)" = "$version"
  launch
  check "the chat in front is in front again" waits 30 window "Name three animals"
  check "the model is loaded" waits 120 logged "loaded " 2
  shot updated
  say " But now it is sent."
  check "a chat of the older version goes on" waits 60 replies 3
  check "the draft was kept" test "$(sql "select text from messages where role = 'user' order by seq desc limit 1")" = "A draft that nobody sent But now it is sent."
  sleep 1
  shot updated-reply
  check "it closes" close_window
  chats >/tmp/chats-after
  check "every message is as it was" cmp -n "$(stat -c %s /tmp/chats-before)" /tmp/chats-before /tmp/chats-after
  check "every setting is as it was" jq -e --slurpfile before /tmp/settings-before 'contains($before[0])' "$data/settings.json"
  check "no error was logged" not grep -E 'ERROR|CRITICAL|Traceback' "$log"
  cp "$log" "$results/update.log"
  check "it is removed" apt-get purge -y kvscope
}

first_start() {
  echo "== a new person's first start, from the menu entry"
  new_person newcomer "/home/Änne Groß – neu"
  start_desktop
  check "the package installs" install_deb ./new.deb
  check "the menu entry is valid" desktop-file-validate $application
  for size in 16 24 32 48 64 128 256 512; do
    check "an icon of $size pixels" test -s /usr/share/icons/hicolor/${size}x$size/apps/kvscope.png
  done
  local begin
  begin=$(now)
  launch
  check "a window appears" waits 30 window
  echo "        after $(since "$begin") s"
  say "Name three colours."
  check "the window takes a message while kernels are compiled" waits 3 questions 1
  check "a child of the application compiles them" waits 3 pgrep -u "$person" -f -- --warm-kernels
  check "the model is not loaded yet" not logged "loaded " 1
  sleep 3
  shot compiling
  check "the reply is written" waits 120 replies 1
  within $FIRST_S "$(first_token_since "$begin")" "the first token of the first start"
  sleep 1
  shot first-reply
  check "it closes" close_window
}

second_start() {
  echo "== the second start"
  local begin before
  before=$(kernel_files)
  begin=$(now)
  launch
  check "the chat is still there" waits 10 window "Name three colours"
  echo "        after $(since "$begin") s"
  say "Name three animals."
  check "the reply is written" waits 60 replies 2
  within $SECOND_S "$(first_token_since "$begin")" "the first token of the second start"
  check "nothing was compiled" test "$before" = "$(kernel_files)"
  say "Write a long story about a lighthouse."
  check "a reply streams" waits 20 streaming 60
  shot streaming
  press ctrl+period
  check "it closes" close_window
}

self_test() {
  echo "== the self-test from the menu entry, in a folder with spaces and other letters"
  local folder="$home/Programme – schön" entry="$home/self-test.desktop"
  as_person mkdir "$folder"
  as_person cp -r /opt/kvscope "$folder/"
  sed "s|^Exec=.*|Exec=\"$folder/kvscope/kvscope\" --self-test|" $application | as_person tee "$entry" >/dev/null
  as_person gio launch "$entry" >"$results/self-test.txt" 2>&1
  check "it passes" waits 60 grep 'self-test fine' "$results/self-test.txt"
  sed 's/^/        /' "$results/self-test.txt"
  check "it compiled nothing either" grep -q 'kernels kept from an earlier start' "$results/self-test.txt"
  as_person find "$kernels" -name 'rowops.add-*' -delete
  check "a kernel that is missing would be noticed" self_test_compiles
  as_person rm -rf "$folder" "$entry"
}
self_test_compiles() { as_person kvscope --self-test | grep 'kernels compiled'; }

files() {
  echo "== opening files"
  local first="$home/Kleines Modell ü.gguf" second="$home/Downloads/a b.gguf"
  as_person mkdir -p "$home/Downloads"
  as_person cp llama.gguf "$first"
  as_person cp llama.gguf "$second"
  as_person cp llama.gguf "$home/no-suffix"
  for file in "$first" "$home/no-suffix"; do
    check "$(basename "$file") is known as a GGUF model" sh -c "gio info -a standard::content-type '$file' | grep -q application/x-gguf"
  done
  check "such files belong to it" sh -c "gio mime application/x-gguf | grep -q kvscope.desktop"
  as_person gio open "$first" >>"$results/app.log" 2>&1 &
  check "a file opens the application" waits 30 window
  check "with that model" waits 60 logged "loading $first" 1
  check "which is loaded" waits 120 logged "loaded " 3
  shot file-opened
  as_person display -size 1000x700 -title "Another window" xc:grey >/dev/null 2>&1 &
  check "another window lies in front" waits 10 as_person xdotool search --onlyvisible --name "Another window" windowactivate --sync
  check "so it is not in front" not in_front
  as_person env XDG_CURRENT_DESKTOP=GNOME xdg-open "$second" >>"$results/app.log" 2>&1
  check "the next file goes to the one that runs" waits 60 logged "loading $second" 1
  check "its window comes to the front" waits 5 in_front
  check "which is loaded" waits 60 logged "loaded " 4
  sleep 1
  shot handed-over
  as_person xdotool search --onlyvisible --name "Another window" windowactivate --sync
  check "a start without a file ends by itself" as_person timeout 10 kvscope
  check "and brings the window to the front too" waits 5 in_front
  check "one window" test "$(window | wc -l)" -eq 1
  check "it closes" close_window
  pkill -u "$person" -x display
}

removal() {
  echo "== removal"
  check "it is removed" apt-get purge -y kvscope
  check "nothing is left of it" nothing_left
  check "nothing is left in /opt" not sh -c "ls -A /opt | grep ."
  check "the person's chats stay" replies 2
  check "no error was logged" not grep -E 'ERROR|CRITICAL|Traceback' "$log"
  cp "$log" "$results/"
}

alone
desktop
update
first_start
second_start
self_test
files
removal
exit $failed
