# Sourced by the suites of packages, after common.sh: packages of this version, the same once more, and of a next version.

# made_twice SCRIPT FILES PLACE: makes them by a script of scripts/, whose results are FILES below target/, and moves them to
# PLACE/first, PLACE/again and PLACE/next. The first two have to be equal, else `result` becomes 1. Ends the suite if they
# cannot be made.
made_twice() {
  local made
  for made in first again next; do
    "$root/scripts/$1" $([[ $made != next ]] || echo "$("$root/scripts/version.sh")+next") ||
      { echo "FAIL the packages are made, and clean"; exit 1; }
    mkdir -p "$3/$made"
    rm -f "$3/$made"/*
    mv "$root/target"/$2 "$3/$made/"
  done
  echo "PASS the packages are made, and clean"
  if diff -r "$3/first" "$3/again"; then echo "PASS made again, they are equal"; else
    echo "FAIL made again, they are equal"; result=1
  fi
}
