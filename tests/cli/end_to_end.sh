# end_to_end.sh CONVNORM JSON_LINES SOURCE: the program as a user meets it. Status 1 if any expectation fails.
set -u
convnorm=$1
json_lines=$2
source=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
failures=0

fail() {
  echo "FAIL: $*"
  failures=$((failures + 1))
}

# expect STATUS ARGS...: runs convnorm; its output stays in out and err.
expect() {
  local wanted=$1 status
  shift
  timeout 60 "$convnorm" "$@" >out 2>err
  status=$?
  [ "$status" = "$wanted" ] || fail "convnorm $*: status $status instead of $wanted: $(head -c 300 err)"
}

# refuse TEXT ARGS...: status 2, one line on stderr that holds TEXT, nothing on stdout.
refuse() {
  local text=$1
  shift
  expect 2 "$@"
  [ "$(wc -l <err)" = 1 ] || fail "convnorm $*: $(wc -l <err) lines on stderr instead of 1"
  grep -qF -- "$text" err || fail "convnorm $*: no '$text' in: $(head -c 300 err)"
  [ -s out ] && fail "convnorm $*: prints on stdout: $(head -c 300 out)"
}

json() {
  "$json_lines" "$@" <out || fail "keys $*"
}

# npy DESCR SHAPE BYTES FILE: zeros.
npy() {
  local header="{'descr': $1, 'fortran_order': False, 'shape': $2, }"
  local size=$((118 - ${#header}))
  {
    printf '\x93NUMPY\x01\x00\x76\x00%s%*s\n' "$header" $((size - 1)) ''
    head -c "$3" /dev/zero
  } >"$4"
}

# wav CHANNELS SAMPLES FILE: 16-bit PCM at 8 kHz, a ramp of bytes.
wav() {
  local data=$((2 * $1 * $2))
  {
    printf 'RIFF'
    word $((36 + data))
    printf 'WAVEfmt '
    word 16
    half 1
    half "$1"
    word 8000
    word $((16000 * $1))
    half $((2 * $1))
    half 16
    printf 'data'
    word "$data"
    for ((i = 0; i < data; ++i)); do byte $((i * 37 % 251)); done
  } >"$3"
}
byte() { printf "\\x$(printf %02x "$1")"; }
half() { byte $(($1 & 255)) && byte $(($1 >> 8 & 255)); }
word() { half $(($1 & 65535)) && half $(($1 >> 16)); }

line=n=2,c=4,l=30,o=8,k=3,p=1,g=4,bias=1,post=silu

# ---- help, version, verbs
expect 0 --version
grep -qE '^convnorm [0-9]+\.[0-9]+\.[0-9]+$' out || fail "--version prints $(cat out)"
expect 0 --help
for verb in run check bench explain info selftest; do
  expect 0 $verb --help
  grep -q '^Examples:' out || fail "$verb --help has no examples"
  grep -q -- --json out || fail "$verb has no --json"
done
refuse 'verb' 
refuse 'frobnicate' frobnicate
refuse 'see `convnorm run --help`' run
refuse '--frobnicate' run $line --output y.npy --frobnicate

# ---- run: drawn tensors, saved and used again
expect 0 run $line --output y.npy --save-tensors t.safetensors
grep -q 'drawn with --seed 0: x, weight, bias, gamma, beta' err || fail "what was drawn is not said: $(cat err)"
expect 0 run $line --output again.npy --tensors t.safetensors
grep -q drawn err && fail "says drawn though all was given"
cmp -s y.npy again.npy || fail "saved tensors give another result"
expect 0 check n=1,c=1,l=1,o=2,k=1,g=1,s=9223372036854775807
for seed in -1 99999999999999999999 7x; do expect 2 run $line --output seed.npy --seed "$seed"; done
expect 0 run $line --output seed.npy --seed 1
cmp -s y.npy seed.npy && fail "another seed gives the same result"
expect 0 run $line --output y.npy --json
json problem output shape dtype path target notes
expect 0 run $line,dtype=bf16 --output b.npy
grep -aq "<V2\||V2" b.npy || fail "bf16 is not written as two-byte void"
expect 0 run $line --output /dev/stdout
[ "$(head -c 6 out)" = "$(printf '\x93NUMPY')" ] || fail "--output /dev/stdout does not write the file there"

# ---- a failed run leaves the old result and no other file
mkdir keep
cp y.npy keep/y.npy
refuse 'bias=1' run n=2,c=4,l=30,o=8,k=3,p=1,g=4 --tensors t.safetensors --output keep/y.npy
cmp -s y.npy keep/y.npy || fail "a failed run changed the old result"
[ "$(ls keep)" = y.npy ] || fail "a failed run left $(ls keep)"
refuse 'no/such/folder' run $line --output no/such/folder/y.npy
refuse 'missing.safetensors' run $line --tensors missing.safetensors --output y2.npy
refuse 'missing.npy' run $line --input missing.npy --output y2.npy
[ -e y2.npy ] && fail "a failed run left y2.npy"

# A run that is ended while it computes, with what a file of the same name held before.
"$convnorm" run n=1,c=64,l=400000,o=64,k=9,p=4,g=8 --path reference --output keep/y.npy >out 2>err &
running=$!
sleep 1
kill -TERM $running
wait $running
[ $? = 143 ] || fail "SIGTERM does not end a run"
cmp -s y.npy keep/y.npy || fail "an ended run changed the old result"
[ "$(ls -A keep)" = y.npy ] || fail "an ended run left $(ls -A keep)"

# ---- sizes from files
wav 2 50 tone.wav
expect 0 run n=auto,c=auto,l=auto,o=8,k=3,p=1,g=4 --input tone.wav --output tone.npy --json
grep -q '"n=1,c=2,l=50,o=8' out || fail "auto sizes of a wav: $(cat out)"
expect 0 run n=1,c=2,l=auto,o=8,k=3,p=1,g=4,layout=nlc --input tone.wav --output tone.npy --json
grep -q '"shape":\[1,50,8\]' out || fail "wav with layout=nlc: $(cat out)"
refuse '(1, 2, 50)' run n=1,c=1,l=50,o=8,k=3,p=1,g=4 --input tone.wav --output y2.npy
refuse 'l=auto' run n=1,c=2,l=auto,o=8,k=3,g=4 --output y2.npy
refuse 'l=auto' check n=1,c=2,l=auto,o=8,k=3,g=4
refuse '--input and by --tensors' run $line --input y.npy --tensors t.safetensors --output y2.npy

# ---- a directory
mkdir clips
wav 1 40 clips/b.wav
wav 1 60 clips/a.wav
cp tone.npy clips/c.npy
expect 2 run n=1,c=1,l=auto,o=4,k=3,p=1,g=2 --input clips --output results --json
"$json_lines" input <out || fail "JSON of a directory"
[ "$(ls results | tr '\n' ' ')" = 'a.npy b.npy ' ] || fail "results of a directory: $(ls results)"
grep -c error out | grep -qx 1 || fail "the bad file of a directory is not reported once"
rm clips/c.npy
expect 0 run n=1,c=1,l=auto,o=4,k=3,p=1,g=2 --input clips --output results
cp clips/a.wav clips/a.flac
refuse 'would both become' run n=1,c=1,l=auto,o=4,k=3,p=1,g=2 --input clips --output results
mkdir empty
refuse 'holds no' run $line --input empty --output results
rm clips/a.flac
refuse 'must be a directory' run n=1,c=1,l=auto,o=4,k=3,p=1,g=2 --input clips --output y.npy
refuse '--save-tensors' run n=1,c=1,l=auto,o=4,k=3,g=2 --input clips --output results --save-tensors t2.safetensors

# ---- B028 to B036: values that break a rule
at() { refuse "$1" check "$2" && refuse "$1" run "$2" --output never.npy && refuse "$1" explain "$2"; }
expect 0 check n=4,c=6,l=5,o=6,k=1,g=0 # B028: g=0 asks for no norm
at '-1' n=1,c=4,l=8,o=4,k=1,g=-1                     # B029
at '-4' n=1,c=4,l=8,o=4,k=1,g=-4
at '8' n=1,c=4,l=8,o=4,k=1,g=8
at '4' n=1,c=6,l=8,o=6,k=1,g=4                       # B030
for key in s=0 s=-1 d=0 d=-1 p=-1; do at "${key#*=}" n=1,c=1,l=32,o=1,k=3,g=1,$key; done # B031
at '0' n=5,c=1,l=224,o=2,k=3,g=1,cg=0                # B032
at '3' n=5,c=4,l=224,o=2,k=3,g=1,cg=3
at '3' n=1,c=1,l=2,o=1,k=3,s=2,g=1                   # B035
expect 0 run n=2,c=4,l=0,o=32,k=2,p=1,g=8,bias=1,affine=0 --output e.npy --json # B036
grep -q '"shape":\[2,32,1\]' out || fail "B036: $(cat out)"
[ -e never.npy ] && fail "a refused line left an output"

# ---- B073: no such device
if ! "$convnorm" info --json | grep -q '"cuda_usable": true'; then
  refuse 'CUDA' run $line --output y2.npy --device cuda
  refuse 'CUDA' check $line --device cuda
  refuse 'CUDA' selftest --device cuda
fi
expect 0 run $line --output y.npy --device auto
refuse 'CUDA_VISIBLE_DEVICES=1' run $line --output y2.npy --device cuda:1
refuse 'none of cpu, cuda and auto' selftest --device gpu

# ---- what fits nowhere is refused before anything is allocated, with what it needs and what there is
huge=n=70000,c=1000,l=100000,o=16,k=5,g=4
fits_nowhere() {
  refuse 'TB of the' "$@"
  grep -qE 'memory are needed, and [0-9.]+ [kMGT]?B are left' err || fail "convnorm $*: $(cat err)"
}
fits_nowhere run $huge --output y2.npy
fits_nowhere check $huge
fits_nowhere bench $huge

# ---- B119, B057: element types
short=n=1,c=1,l=4,o=2,k=1,g=1
npy "'<f8'" '(1, 1, 4)' 32 f8.npy
expect 0 run $short --input f8.npy --output y2.npy
grep -q 'note: x converted from f64 to f32' err || fail "f64 is converted without a note: $(cat err)"
npy "'<i2'" '(1, 1, 4)' 8 i2.npy
refuse 'x is i16, accepted are f16, bf16, f32 and f64' run $short --input i2.npy --output y3.npy
npy "'|b1'" '(1, 1, 4)' 4 b1.npy
refuse 'bool' run $short --input b1.npy --output y3.npy
npy "'|O'" '(1, 1, 4)' 32 object.npy
refuse 'O' run $short --input object.npy --output y3.npy
npy "[('a', '<f4')]" '(1, 1, 4)' 16 struct.npy
refuse 'struct.npy' run $short --input struct.npy --output y3.npy

# ---- check
expect 0 check $line
grep -q PASS out || fail "check prints no PASS"
expect 0 check $line --json
json problem path target max_abs_err worst_ratio worst_at pass kappa compared
expect 0 check $line --all-paths --json
grep -q '"path":"reference"' out || fail "--all-paths leaves the reference out"
refuse 'nosuchpath' check $line --path nosuchpath
refuse 'nosuchtarget' check $line --target nosuchtarget
expect 0 check $line --path reference --threads 1
printf 'good\t%s\nn=1,c=2,l=5,o=2,k=1,g=1 # bare\n' $line >list.txt
expect 0 check @list.txt --json
[ "$(wc -l <out)" = 2 ] || fail "a list of two gives $(wc -l <out) objects"
expect 0 check --only good @list.txt
refuse 'list.txt' check @list.txt --only better
printf '# comment\nbad n=1,c=2,l=5,o=2,k=1,g=3\n' >bad.txt
refuse 'bad.txt:2:' check @bad.txt
refuse 'nothere.txt' check @nothere.txt

# ---- bench
expect 0 bench $short --min-time 0.01 --json --unfused
json problem path max_abs_err worst_ratio pass median_us spread_us gflops gbps floor_us floor_share pack_us unfused unfused_ratio
expect 0 bench $short --min-time 0.01 --json --hot --no-check
json compared median_us
grep -q '"compared":"nothing"' out || fail "--no-check does not say so"
refuse 'n=0' bench n=0,c=1,l=4,o=2,k=1,g=1
refuse '--chain' bench $short --device cpu --chain
refuse '--unfused' bench $short --unfused --chain
expect 0 bench $short --device cpu --min-time 0.01 --constant-weights --no-check
grep -q 'note: --constant-weights' err || fail "a flag that the CPU does not use is not remarked on: $(cat err)"
expect 0 bench $short --min-time 0.01 --unfused
grep -qE '^ +median [0-9.]+ [mu]?s +spread' out || fail "times are not in columns: $(cat out)"

# ---- explain, info, selftest
expect 0 explain $line
expect 0 explain $line --json
tr -d '\n' <out >one && mv one out && json path
expect 0 info --json
tr -d '\n' <out >one && mv one out && json version
expect 0 selftest
grep -q PASS out || fail "selftest prints no PASS"
expect 0 selftest --json
json pass

# ---- the shared lists can be read
expect 0 check "@$source/bench/shapes/smoke.txt" --only plain,glu,lengths
expect 2 check "@$source/bench/shapes/layers.txt" --only default --path nosuchpath

[ "$failures" = 0 ] && echo "all as expected"
exit $((failures > 0))
