# documentation.sh CONVNORM JSON_LINES SOURCE: runs every command that README.md and docs/ show in a ```sh block, and the
# examples of every --help that need no file of the user. All must end with status 0; bench may also refuse its own
# measurement, where other work disturbs it.
set -u
convnorm=$1
source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
cp -r "$source/bench" .
mkdir bin && ln -s "$convnorm" bin/convnorm
PATH=$work/bin:$PATH

failures=0
try() {
  local status=0
  timeout 60 bash -c "$1" >out 2>&1 || status=$?
  if [ $status = 1 ] && [[ $1 == "convnorm bench "* ]] && grep -q 'below its own floor' out; then status=0; fi
  if [ $status != 0 ]; then
    echo "FAIL: $1: status $status: $(head -c 300 out)"
    failures=$((failures + 1))
  fi
}

commands=0
while IFS= read -r command; do
  commands=$((commands + 1))
  try "$command"
done < <(sed -n '/^```sh/,/^```$/p' "$source/README.md" "$source"/docs/*.md | grep -v '^```')
[ "$commands" -gt 15 ] || { echo "FAIL: only $commands commands in README.md and docs/" && failures=1; }

for verb in run check explain info; do
  while IFS= read -r command; do
    case $command in
      *--input* | *--tensors* | *layers.txt*) ;; # need files, or minutes
      *) try "$command" ;;
    esac
  done < <(convnorm $verb --help | sed -n '/^Examples:/,$s/^  convnorm/convnorm/p')
done
exit $((failures > 0))
