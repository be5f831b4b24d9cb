# Runs the commands of a file (xfrm-commands.txt) and shows their output. XFRM takes the place of `ip xfrm`.
monitor= seen=$(mktemp)
# within TRIES COMMAND...: repeats it until it succeeds, twenty times a second
within() {
  local tries=$1
  shift
  until "$@" || [ $((tries -= 1)) -lt 0 ]; do sleep 0.05; done
}
# The number of sockets that listen to events of the kernel or of a daemon.
listeners() { awk '($2 == 6 || $2 == 2) && $4 !~ /^0+$/' /proc/net/netlink | wc -l; }
more_than() { [ "$(listeners)" -gt "$1" ]; }
not_more_than() { [ "$(listeners)" -le "$1" ]; }
seen_lines() { [ "$(wc -l <"$seen")" -ge "$1" ]; }
# ask [OPTIONS] xfrm WORDS
ask() {
  local options=()
  while [ "$1" != xfrm ]; do
    options+=("$1")
    shift
  done
  shift
  if [ -n "$XFRM" ]; then
    $as $XFRM "${options[@]}" "$@"
  else
    $as ip "${options[@]}" xfrm "$@"
  fi
}
while IFS= read -r line; do
  as=
  case $line in
    '' | '#'*) continue ;;
    '+ '*)
      before=$(listeners)
      ${XFRM:-ip xfrm} monitor ${line#+ } >"$seen" 2>&1 &
      monitor=$!
      within 600 more_than "$before"
      echo "== monitor ${line#+ }"
      continue
      ;;
    -)
      sleep 0.3
      kill "$monitor"
      wait "$monitor" 2>/dev/null
      # Sealane learns a moment later that it has ended.
      within 600 not_more_than "$before"
      echo "== seen"
      cat "$seen"
      continue
      ;;
    # Events follow their commands a moment later; this waits for a number of lines.
    '= '*)
      within 600 seen_lines "${line#= }"
      continue
      ;;
  esac
  echo "== $line"
  case $line in
    '! '*)
      as="setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all"
      line=${line#! }
      ;;
  esac
  set -f
  eval "set -- $(printf %s "$line" | sed 's/[()!,]/\\&/g')"
  ask "$@" 2>&1
  echo "-- $?"
done <"$1"
