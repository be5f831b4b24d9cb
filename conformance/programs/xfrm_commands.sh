# Runs the commands of a file (xfrm-commands.txt) and tells what they print.
monitor= seen=$(mktemp)
while IFS= read -r line; do
  case $line in
    '' | '#'*) continue ;;
    '+ '*)
      ip xfrm monitor ${line#+ } >"$seen" 2>&1 &
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
  as=
  case $line in
    '! '*)
      as="setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set=-all"
      line=${line#! }
      ;;
  esac
  set -f
  eval "set -- $(printf %s "$line" | sed 's/[()!,]/\\&/g')"
  $as ip "$@" 2>&1
  echo "-- $?"
done <"$1"
