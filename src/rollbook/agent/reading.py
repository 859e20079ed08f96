"""What the agent reads on a host: files, links, mounts and the environment, as pages."""

import errno
import os

from rollbook.agent.redaction import mask_file, mask_variable
from rollbook.agent.wire import SHORTAGES, note_shortage, slurp

FILES = 8192  # files one wildcard may match
STEP = 1 << 14  # bytes per read: the allocator gets larger buffers from the kernel every time
# The last is in PATH of Debian's logins.
PATH = ":/usr/local/sbin:/usr/sbin:/sbin:/usr/local/bin:/usr/bin:/bin:/usr/games"
STATUS = {
    errno.ENOENT: "absent",
    errno.ENOTDIR: "absent",
    errno.ENODEV: "absent",
    errno.ENXIO: "absent",
    errno.EACCES: "denied",
    errno.EPERM: "denied",
    errno.ETIMEDOUT: "timed-out",
}
# File systems without storage; statvfs on an autofs would mount it.
VIRTUAL = set(
    "proc sysfs cgroup cgroup2 devpts devtmpfs securityfs debugfs tracefs mqueue bpf pstore configfs hugetlbfs "
    "fusectl autofs nsfs binfmt_misc rpc_pipefs efivarfs selinuxfs ramfs".split()
)


def fits(name: str, pattern: str) -> bool:
    """Whether a name matches a pattern of characters, `*`, `[0-9]` and `[!x]`; fnmatch would import `re`."""
    first, star, last = pattern.partition("*")
    if star and "*" not in last and "[" not in pattern:  # as most are
        return len(name) >= len(first + last) and name.startswith(first) and name.endswith(last)
    if not pattern:
        return not name
    if pattern[0] == "*":
        return any(fits(name[at:], pattern[1:]) for at in range(len(name) + 1))
    if pattern[0] == "[":
        letters, _, rest = pattern[1:].partition("]")
        first = name[:1]
        return bool(first) and (first.isdigit() if letters == "0-9" else first != letters[1]) and fits(name[1:], rest)
    return name[:1] == pattern[0] and fits(name[1:], pattern[1:])


def cgroups(own: bool) -> "list[str]":
    """Directories of the agent's own cgroups, one per hierarchy; without `own`, each with its ancestors.

    If Slurm started the agent, its own cgroup is that of the job, not of the step.
    """
    found = []
    for line in slurp("/proc/self/cgroup", 65536).splitlines():
        controllers, _, path = line.partition(":")[2].partition(":")
        names = [controllers] + controllers.split(",") if controllers else [".", "unified"]
        roots = [os.path.normpath("/sys/fs/cgroup/" + name) for name in names]
        roots = [root for root in roots if os.path.exists(root + "/cgroup.procs")]
        if not roots:
            continue
        path = os.path.normpath("/" + path.lstrip("/"))
        chain = []
        while path != "/":
            if os.path.isdir(roots[0] + path):  # inside a container the path may not exist
                chain.append(roots[0] + path)
            path = os.path.dirname(path)
        chain.append(roots[0])
        job = [path for path in chain if os.path.basename(path).startswith("job_")]
        found += (job or chain)[:1] if own else chain
    return found


class Tree:
    """A cache of directory listings for one reading of a host: many sources use the same directories."""

    def __init__(self) -> None:
        self.listed: "dict[str, dict[str, bool]]" = {}
        self.directories: "dict[str, list[str]]" = {"": [""]}

    def names(self, directory: str) -> "dict[str, bool]":
        """The sorted names in a directory, each with whether it may be a directory; hidden files are left out."""
        if directory not in self.listed:
            try:
                found = [(e.name, not e.is_file(follow_symlinks=False)) for e in os.scandir(directory)]
            except OSError as error:
                note_shortage(error)
                found = []
            self.listed[directory] = dict(sorted(pair for pair in found if pair[0][0] != "."))
        return self.listed[directory]

    def matches(self, pattern: str) -> "tuple[bool, list[str]]":
        """Candidate paths for a pattern with wildcards, `{cgroup}` or `{own}`, and whether absence is reported."""
        if pattern[0] == "/" and "*" not in pattern:
            return True, [pattern]
        return False, self.below(pattern, True)

    def below(self, pattern: str, last: bool) -> "list[str]":
        """Candidate paths; `last` means that they need not be directories.

        Only directories that a wildcard applies to are listed, and cgroups, because many files are read from them:
        trying to open one absent file is cheaper than listing a directory.
        """
        head, _, part = pattern.rpartition("/")
        if head not in self.directories:
            own = head == "{own}"
            self.directories[head] = cgroups(own) if own or head == "{cgroup}" else self.below(head, False)
        bases = self.directories[head]
        if "*" not in part:
            return [base + "/" + part for base in bases if pattern[0] == "/" or part in self.names(base)]
        found = []
        for base in bases:
            for name, more in self.names(base or "/").items():
                if (more or last) and fits(name, part):
                    found.append(base + "/" + name)
        return found[:FILES]


def environment(prefixes: "list[str]") -> bytes:
    """The environment by allow-list, one `NAME=value` a line."""
    lines = [
        "%s=%s\n" % (name, mask_variable(name, value).replace("\\", "\\\\").replace("\n", "\\n"))
        for name, value in sorted(os.environ.items())
        if name.startswith(tuple(prefixes))
    ]
    return "".join(lines).encode("utf-8", "surrogateescape")


def mounts() -> "list[str]":
    """Mount points of file systems with storage; a later mount hides an earlier one at the same path."""
    found = {}
    for line in slurp("/proc/self/mountinfo", 4 << 20).splitlines():
        left, _, right = line.partition(" - ")
        words, kind = left.split(), right.split()[:1]
        if len(words) > 4 and kind:
            found[words[4]] = kind[0]
    return [path for path, kind in found.items() if kind not in VIRTUAL]


def unescape(path: str) -> bytes:
    r"""A mount point with the kernel's octal escapes (\040) decoded."""
    first, *rest = os.fsencode(path).split(b"\\")
    return first + b"".join(bytes((int(p[:3], 8),)) + p[3:] if p[:3].isdigit() else b"\\" + p for p in rest)


def escape_path(path: str) -> bytes:
    """A path as it is written in the header of a page."""
    return path.replace("\\", "\\\\").replace("\n", "\\n").encode("utf-8", "surrogateescape")


def page(path: str, status: str, data: bytes = b"") -> bytes:
    """One page of a reading: `STATUS LENGTH PATH`, then the bytes."""
    return status.encode() + b" %d " % len(data) + escape_path(path) + b"\n" + data


def truncated_page(name: str, data: bytes) -> bytes:
    """A page that exceeded its limit. Only complete lines are kept: half a number would be a wrong number."""
    return page(name, "truncated", data[: data.rfind(b"\n") + 1])


def status_of(error: OSError) -> str:
    """The page status for an error."""
    return STATUS.get(error.errno or 0, "failed")


def failed_page(path: str, error: OSError) -> bytes:
    """A page without data; its text is the reason if that is not a property of the host."""
    return page(path, status_of(error), SHORTAGES.get(error.errno or 0, b""))


def find_program(program: str, more: "list[str]") -> str:
    """The path of a program in one of the system's directories, or in `more`; an empty string if there is none."""
    directories = PATH.split(":")[1:] + more
    found = [path + "/" + program for path in directories if os.access(path + "/" + program, os.X_OK)]
    return program if "/" in program else found[0] if found else ""


def user_directories() -> "list[str]":
    """Directories of PATH that are not the system's. They may be on a file server, so only a child searches them."""
    return [path for path in os.environ.get("PATH", "").split(":") if path and path not in PATH.split(":")]


def read_file(path: str, limit: int) -> bytes:
    """A page with a file's text. Kernel files report a wrong size: read to the end of file or to the limit."""
    pieces: "list[bytes]" = []
    left = limit
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            while left > 0:
                piece = os.read(fd, min(left, STEP))
                if not piece:
                    return page(path, "ok", mask_file(path, b"".join(pieces)))
                pieces.append(piece)
                left -= len(piece)
        finally:
            os.close(fd)
    except OSError as error:
        return failed_page(path, error)
    return truncated_page(path, mask_file(path, b"".join(pieces)))


def read_link(path: str) -> bytes:
    """A page with a symbolic link's target."""
    try:
        return page(path, "ok", os.readlink(os.fsencode(path)))
    except OSError as error:
        return failed_page(path, error)


def read_space(path: str) -> bytes:
    """A page with the result of statvfs(2) for one mount point."""
    try:
        s = os.statvfs(unescape(path))
    except OSError as error:
        return failed_page(path, error)
    numbers = s.f_bsize, s.f_frsize, s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, s.f_favail
    return page(path, "ok", b"%d %d %d %d %d %d %d %d" % numbers)
