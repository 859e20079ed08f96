# The shell stand-in for hosts without Python: the agent's orders and frames (see agent.py) in POSIX shell.
#
# It sends facts and samples in the same frames, but slower: at most one sample per second, always of all sampled
# sources. Programs need `timeout`. File systems that may hang are skipped, because a shell cannot abandon a child that
# is stuck in the kernel. Uses head, sed, od, tr, fold, cksum, date, readlink, stat and env of coreutils or busybox.
LC_ALL=C
export LC_ALL
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin
tab=$(printf '\t')
nl='
'
tag=s
seq=0
plan=
sampler=
known=
doubt=0

uptime() {
    read -r up _ </proc/uptime
    mono=${up%.*}${up#*.}0000000
    mono=${mono#"${mono%%[!0]*}"}
}

# clocks: set mono and wall. A host may pause between the two reads, and a date without nanoseconds is up to a second
# late: a difference that can be explained by that, in this pair or in the one it is compared to, is not a clock that was
# set. The first pair, to which others are compared, is read again after a pause.
clocks() {
    for try in 1 2 3; do
        uptime
        before=$mono error=10000000 # the resolution of uptime
        wall=$(date +%s%N)
        # A date without nanoseconds prints %N as it is or, on Alpine, prints nothing for it.
        [ ${#wall} -ge 19 ] || wall=${wall%%[!0-9]*}000000000 error=1000000000
        uptime
        error=$((error + mono - before)) mono=$before
        if [ -n "$known" ] || [ $error -le 30000000 ]; then break; fi
    done
    late=$((wall - mono - ${known:-0})) bound=$((error > doubt ? error : doubt))
    if [ -n "$known" ] && [ $bound -gt 30000000 ] && [ ${late#-} -le $bound ]; then
        wall=$((mono + known))
    else
        known=$((wall - mono)) doubt=$error
    fi
}

# frame KIND PAYLOAD: send a frame with the caller's clocks
frame() {
    total=$(printf '%s%s' "$1 $seq $mono $wall" "$2" | cksum)
    printf '%s' "$2" | od -An -v -tx1 | tr -d ' \n' | fold -w 900 | {
        last=
        while read -r line || [ -n "$line" ]; do
            [ -z "$last" ] || printf '@rb1 %s %s %s\n' $tag $seq "$last"
            last=$line
        done
        printf '@rb1 %s %s ! %s %s %s p%s %s\n' $tag $seq "$1" "$mono" "$wall" "${total%% *}" "$last"
    }
    seq=$((seq + 1))
}

# page STATUS PATH TEXT: add a page to the reading
page() {
    pages="$pages$1 ${#3} $2$nl$3"
    left=$((left - ${#3}))
}

# mask kernel|mounts|variables: hide secrets on stdin as redaction.py does; where a rule is coarser, it hides more
mask() {
    word='[A-Za-z0-9_.-]*(passw(or)?d|passphrase|passcode|secret|token|apikey|accesskey|secretkey|accountkey)'
    word="($word([._-][A-Za-z0-9_.-]*)?|([A-Za-z0-9_.-]*[._-])?(pass|pwd|pw|auth|authorization|cookie|creds?|credential"
    word="$word|key|psk|private|sig|signature))[0-9]*"
    user='[A-Za-z0-9._%+~\\-]+'
    case $1 in
    kernel)
        set -- -e 's/(systemd\.set_credential[a-z_]*=)"[^"]*"/\1***/g' \
            -e 's/(systemd\.set_credential[a-z_]*=[^: ]*:)("[^"]*"|[^ ]*)/\1***/g' \
            -e "s/(^| )\"($word)=[^\"]*\"/\1\"\2=***\"/gI" -e "s/(^|[ ;&?,])($word)=(\"[^\"]*\"|[^ ]*)/\1\2=***/gI"
        ;;
    mounts)
        set -- -e "s/(^|[ ,])($word)=[^ ,]*/\1\2=***/gI" -e 's/([ ,]user(name)?=[^ ,%]*)%[^ ,]*/\1%***/g'
        ;;
    variables)
        set -- -e 's/^([^=]*=).*PRIVATE KEY-----.*/\1***/' -e "s/([=;&?, {\"'])($word)[\"' ]*[=:][^;&]*/\1\2=***/gI" \
            -e 's/([Bb]earer|[Bb]asic) [^ ]+/\1 ***/g'
        ;;
    esac
    sed -E "$@" -e 's#://[^ "/]*@#://***@#g' -e 's#://[^][ "/@]*:[^ "@]*@#://***@#g' \
        -e "s#(^|[ =,\"])((iscsi|nbd|nfs4?|fcoe|cifs):)?(//)?$user:/?[^]/ ][^] ]*@#\\1\\2\\4***@#g" \
        -e 's/(^|[^A-Za-z0-9_])(A[KS]IA|AIza|eyJ|gh[posu]_|github_pat_|glpat-|hf_|npm_|nvapi-|pypi-|sk-|xox[bp]-|ya29\.)[A-Za-z0-9_.+~-]{6,}/\1***/g'
}

# masked FILE: its text without secrets; fails where sed is missing
masked() {
    case $1 in
    /proc/cmdline) head -c $left "$1" | mask kernel ;;
    *) head -c $left "$1" | mask mounts ;;
    esac
}

read_file() {
    if [ ! -e "$1" ]; then
        page absent "$1"
    elif [ ! -r "$1" ]; then
        page denied "$1"
    elif [ $left -le 0 ]; then
        page truncated "$1"
    else
        one= two= reader="head -c $left"
        case $1 in /proc/cmdline | /proc/mounts | /proc/self/mount*) reader=masked ;; esac
        # Most files of sysfs have one line: read them without starting a process.
        if [ "$reader" != masked ] &&
            { IFS= read -r one && ! IFS= read -r two; } <"$1" 2>/dev/null && [ -z "$two" ] && [ -n "$one" ]; then
            page ok "$1" "$one$nl"
        elif data=$($reader "$1" 2>/dev/null && echo x); then
            data=${data%x"$nl"}
            data=${data%x}
            verdict=ok
            if [ ${#data} -ge $left ]; then
                # Complete lines only: half a number would be a wrong number.
                verdict=truncated
                case $data in *"$nl"*) data=${data%"$nl"*}$nl ;; *) data= ;; esac
            fi
            page $verdict "$1" "$data"
        else
            page failed "$1"
        fi
    fi
}

read_link() {
    if data=$(readlink "$1" 2>/dev/null); then page ok "$1" "$data"; else page absent "$1"; fi
}

# cgroups [own]: directories of this process's cgroups, without `own` each followed by its ancestors;
# under Slurm the own cgroup is that of the job
cgroups() {
    while IFS=: read -r _ names path; do
        for name in "$names" $(echo "${names:-. unified}" | tr , ' '); do
            root=/sys/fs/cgroup/$name
            root=${root%/.}
            root=${root%/}
            [ -e "$root/cgroup.procs" ] || continue
            case $1$path in own*/job_*)
                step=${path#*/job_}
                case $step in */*) path=${path%"/${step#*/}"} ;; esac
                ;;
            esac
            while [ "$path" != / ] && [ -n "$path" ]; do
                if [ -d "$root$path" ]; then
                    echo "$root$path"
                    [ -z "$1" ] || break 2
                fi
                path=${path%/*}
            done
            echo "$root"
            break
        done
    done </proc/self/cgroup
}

# each FUNCTION PATH: call the function for every match
each() {
    case $2 in
    *{cgroup}*)
        for directory in $(cgroups); do each "$1" "$directory${2#"{cgroup}"}"; done
        ;;
    *{own}*)
        for directory in $(cgroups own); do each "$1" "$directory${2#"{own}"}"; done
        ;;
    *\**)
        for match in $2; do
            if [ -e "$match" ] || [ -L "$match" ]; then "$1" "$match"; fi
        done
        ;;
    *) "$1" "$2" ;;
    esac
}

escaped() {
    rest=$1 text=
    while [ "$rest" != "${rest#*"$2"}" ]; do
        text=$text${rest%%"$2"*}$3
        rest=${rest#*"$2"}
    done
    text=$text$rest
}

# environment PREFIX…: variables by allow-list, secrets masked as the agent does
environment() {
    list=
    for name in $(env | tr -d '\r' | while IFS='=' read -r name _; do
        case $name in *[!A-Za-z0-9_]* | [0-9]* | '') ;; *) echo "$name" ;; esac
    done | sort -u); do
        allowed=
        for prefix; do case $name in "$prefix"*) allowed=1 ;; esac; done
        eval "[ -n \"\$allowed\" ] && [ -n \"\${$name+set}\" ] && value=\$$name" || continue
        case $(echo "$name" | tr '[:lower:]' '[:upper:]') in
        *KEY* | *TOKEN* | *SECRET* | *PASS* | *CRED* | *AUTH* | *COOKIE* | *SIGNATURE* | *PRIVATE* | *SESSION*)
            value='***'
            ;;
        esac
        escaped "$value" '\' '\\'
        escaped "$text" "$nl" '\n'
        list="$list$name=$text$nl"
    done
    if list=$(printf %s "$list" | mask variables); then
        page ok environment "$list${list:+$nl}"
    else
        page failed environment
    fi
}

program() {
    name=$*
    name=$(echo "$name" | tr '\t' ' ')
    if ! command -v "$1" >/dev/null 2>&1; then
        page absent "$name"
        return
    elif ! command -v timeout >/dev/null 2>&1; then
        page skipped "$name"
        return
    elif [ $left -le 0 ]; then
        page truncated "$name"
        return
    fi
    # Up to the limit, the exit status after the output is complete; it has at most five bytes.
    data=$({ timeout -s KILL $(((milliseconds + 999) / 1000)) "$@" 2>/dev/null </dev/null; echo "x$?"; } |
        head -c $((left + 6)); echo y)
    data=${data%y} code=0
    if [ ${#data} -lt $((left + 6)) ]; then
        code=${data##*x}
        data=${data%x"$code"}
        code=${code%"$nl"}
    fi
    verdict=ok
    if [ ${#data} -gt $left ]; then
        verdict=truncated
        while [ ${#data} -ge $left ]; do
            case $data in *"$nl"*) data=${data%"$nl"*} ;; *) data= ;; esac
        done
        data=$data${data:+$nl}
    fi
    case $code in
    124 | 137) page timed-out "$name" "$data" && status=timed-out ;;
    0) page $verdict "$name" "$data" ;;
    *) if [ -n "$data" ]; then page $verdict "$name" "$data"; else page failed "$name"; fi ;;
    esac
}

# for_each PATTERN ARGV: run a program for every match; {} is replaced by the last part of its path
for_each() {
    for match in $1; do
        [ ! -e "$match" ] || named "${match##*/}" "$@"
    done
}

named() {
    replacement=$1 words=$(($# - 2))
    shift 2
    while [ $words -gt 0 ]; do
        escaped "$1" '{}' "$replacement"
        shift
        set -- "$@" "$text"
        words=$((words - 1))
    done
    program "$@"
}

space() {
    list=$nl
    while read -r _ _ _ _ place rest; do
        kind=${rest##* - }
        case $list in
        *"$nl$place "*) # a later mount hides an earlier one at the same path
            rest=${list#*"$nl$place "}
            list=${list%%"$nl$place "*}$nl${rest#*"$nl"}
            ;;
        esac
        list="$list$place ${kind%% *}$nl"
    done </proc/self/mountinfo
    while read -r place kind; do
        [ -n "$place" ] || continue
        case $kind in
        proc | sysfs | cgroup | cgroup2 | devpts | devtmpfs | securityfs | debugfs | tracefs | mqueue | bpf) continue ;;
        pstore | configfs | hugetlbfs | fusectl | autofs | nsfs | binfmt_misc | rpc_pipefs) continue ;;
        efivarfs | selinuxfs | ramfs) continue ;;
        esac
        case $kind in
        nfs* | lustre | fuse* | ceph | gpfs | cifs | smb3 | beegfs | 9p | afs | glusterfs) page skipped "$place" ;;
        *)
            if data=$(stat -f -c '%s %S %b %f %a %c %d %d' "$(printf '%b' "$place")" 2>/dev/null); then
                page ok "$place" "$data"
            else
                page failed "$place"
            fi
            ;;
        esac
    done <<PLACES
$list
PLACES
}

# go PHASE [sampled]: read the plan once, or only its sampled sources
go() {
    phase=$1 sampled=$2 source=
    while IFS= read -r line; do
        IFS=$tab
        set -f
        # shellcheck disable=SC2086 # split at tabs
        set -- $line
        set +f
        unset IFS
        word=$1
        case $word in
        source | end)
            [ -z "$source" ] || {
                phase_mono=$mono phase_wall=$wall
                clocks
                took=$(((mono - phase_mono) / 1000)) mono=$phase_mono wall=$phase_wall
                frame R "$source $phase $status $took $nl$pages"
            }
            [ $word = source ] || break
            source=$2 left=$4 milliseconds=$5 pages='' status='-'
            [ -z "$sampled" ] || [ "$3" != 0 ] || source=
            clocks
            ;;
        *)
            [ -n "$source" ] || continue
            shift
            case $word in
            read) each read_file "$1" ;;
            link) each read_link "$1" ;;
            run) program "$@" ;;
            each) for_each "$@" ;;
            env) environment "$@" ;;
            space) space ;;
            esac
            ;;
        esac
    done <<PLAN
${plan}end
PLAN
}

# sample NANOSECONDS [TIME...]: take samples now and on multiples of the interval, which is rounded up to seconds, so that
# samples are never taken more often than requested, and doubles at each TIME; ends with its parent
sample() {
    interval=$1
    shift
    tag=b seq=0 pause=
    trap '[ -z "$pause" ] || kill $pause 2>/dev/null' EXIT
    trap exit TERM HUP INT
    fine=$(sleep 0.001 2>/dev/null && echo 1)
    while kill -0 $$ 2>/dev/null; do
        go sample sampled
        clocks
        while [ $# -gt 0 ] && [ "$wall" -ge "$1" ]; do
            interval=$((interval * 2))
            shift
        done
        step=$(((interval + 999999999) / 1000000000 * 1000000000))
        left=$((step - wall % step))
        # Sleep long pauses in pieces, to notice soon that the parent was killed.
        while [ $left -gt 0 ] && kill -0 $$ 2>/dev/null; do
            nap=$((left < 5000000000 ? left : 5000000000))
            left=$((left - nap))
            part=$((1000000000 + nap % 1000000000))
            nap=$((nap / 1000000000))
            if [ -n "$fine" ]; then nap=$nap.${part#1}; else nap=$((nap + 1)); fi
            sleep $nap >/dev/null 2>&1 &
            pause=$!
            wait $pause
            pause=
        done
    done
}

trap '[ -z "$sampler" ] || kill "$sampler" 2>/dev/null' EXIT
trap exit TERM HUP INT
clocks
frame H "agent=1${nl}kind=sh${nl}python=${nl}pid=$$${nl}uid=$(id -u)${nl}hostname=$(uname -n)${nl}release=$(uname -r)
machine=$(uname -m)${nl}machine_id=$(cat /etc/machine-id 2>/dev/null)
boot_id=$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)${nl}hz=$(getconf CLK_TCK 2>/dev/null || echo 100)$nl"
while IFS= read -r order; do
    case $order in
    go*)
        go "${order#*"$tab"}"
        clocks
        frame D "$phase"
        ;;
    ping*)
        clocks
        frame P "${order#*"$tab"}"
        ;;
    sample*)
        sample ${order#*"$tab"} </dev/null &
        sampler=$!
        ;;
    # Not by a signal to the sampler: shells run a trap late or never if it comes just before they wait.
    mark*) [ -z "$sampler" ] || go sample sampled ;;
    clock* | key) ;; # every reading is complete
    stop)
        [ -z "$sampler" ] || kill "$sampler" 2>/dev/null
        sampler=
        clocks
        frame E "sent=${nl}"
        break
        ;;
    *) plan=$plan$order$nl ;;
    esac
done
