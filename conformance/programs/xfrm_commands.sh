# Runs the commands of a file (xfrm-commands.txt) and tells what they print. XFRM is what stands for `ip xfrm`.
monitor= seen=$(mktemp)
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
      ${XFRM:-ip xfrm} monitor ${line#+ } >"$seen" 2>&1 &
      monitor=$!
      sleep 0.5
      echo "== monitor ${line#+ }"
      continue
      ;;
    -)
      sleep 0.3
      kill "$monitor"
      wait "$monitor" 2>/dev/null
      echo "== seen"
      cat "$seen"
      continue
      ;;
    '. '*)
      sleep "${line#. }"
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
