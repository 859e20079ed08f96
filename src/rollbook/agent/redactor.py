"""Replaces secrets in a stream of text by marks, on the host, before anything is sent. Only part of issue reports.

A mark is `***` and eight digits of a keyed hash: equal secrets have equal marks on all hosts of a run, and only its
salt allows guesses. What a secret setting is called is defined in `redaction.py`; here are the forms of text that it
occurs in. Most text has no secret, so kinds of lines are searched for hints first: a kind is a line in lower case
without hexadecimal digits and most punctuation, and logs have few kinds. Only lines with a hint are parsed.

Private keys and other secrets over several lines (`spans.py`) have a state, which is kept from line to line.
"""

import re

from rollbook.agent.redaction import MASK, NETWORKS
from rollbook.agent.secret_names import is_secret_name, is_vague
from rollbook.agent.secure import Key
from rollbook.agent.spans import BLOCK_SCALAR, MANIFEST, Span, follow_manifest, opened

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from re import Match, Pattern

    from rollbook.agent.spans import Manifest

    Bounds = Callable[[bytes, Match[bytes], bool], tuple[int, int, bytes]]
    State = tuple[int, Span | None, int, Manifest | None]

LONGEST_LINE = 1 << 20  # bytes; a longer line is redacted in pieces
NEAR = 4096  # bytes around a cut that decide whether it is safe
LONGEST_KEY = 400  # lines of a private key without an end
MAX_REDACTIONS = 10000  # marks in a log
REDACTED = re.compile(rb"\*\*\*[0-9a-f]{8}")

NOT_VALUES = set(
    b"true false yes no none null (null) nil on off ok required optional default unset empty disabled bearer basic "
    b"digest negotiate token apikey aws4-hmac-sha256".split()
)
LOCATION = re.compile(rb"/(?:etc|var|run|usr|opt|home|root|tmp|mnt|srv|proc|sys|dev|data|lib|bin)(?:/[\w.@:\-]+)+/?")
# nsswitch.conf
NAME_SERVICES = re.compile(rb"(?:(?:files|systemd|sss|compat|ldap|nis|db|winbind|\[[!A-Z]+(?:=\w+)?\])[ \t]*)+")
REFERENCE = re.compile(
    rb"\$\{\w+\}|\$\(.*\)|\$\([\w./\-]*|\$[A-Z_][A-Z0-9_]*|%\(?\w*\)?[sd]|\{\{.*\}\}|<[a-z_ \-]+>|\*+|\[\]?|\{\}?|x+"
)
RANDOM = re.compile(rb"(?=.*[0-9])(?=.*[A-Z])(?=.*[a-z])[A-Za-z0-9+/_=.%\-]{16,}")
COLOURS = rb"(?:\x1b\[[0-9;]*m)*"  # around names and values, in logs for terminals
# `name=`, `name:`, `"name": `, `["name"] =`, `<name>`, and `name: NAME` followed by `value:`, which Hadoop writes as
# `<name>NAME</name><value>`. Go writes `&` in JSON as `\u0026`.
SETTING = re.compile(
    rb"(?:(?<=\x1b\[)[0-9;]*m|(?<![A-Za-z0-9_.\-])(?:u0026)?)([A-Za-z0-9_.\-]{1,120})(?![A-Za-z0-9_.\-])"
    rb"([\"'\\]*\]?" + COLOURS + rb"(?:[ \t]*(?:=>|:=|[:=>])|,?\s*[\"'\\]*value[\"'\\]*[ \t]*[:=]|</name>\s*<value>)"
    rb"[ \t]*" + COLOURS + rb")"
)
# The last group is the value. In a text inside another one, the quotes themselves are escaped.
QUOTED = re.compile(rb"(\\+[\"'])((?:(?!\1)[^\r\n])*)|\"((?:\\[^\r\n]|[^\r\n\"\\])*)|'((?:\\[^\r\n]|[^\r\n'\\])*)")
# Separators and brackets are part of a value unless the value ends there.
UNQUOTED = re.compile(
    rb"(?:[^\s;&\"'`,<)}\]\\\x1b]|\\(?![\"'nrt]|u0026)|,(?=[^\s\"'}\]])(?![\w.\-]+[=:])|[)}\]](?=[^\s,;\"'`)}\]])|[\"'](?=\w))+"
)
LINE_START = re.compile(rb"[ \t\-]*(?:export[ \t]+|set[ \t]+|env[ \t]+)?[\"']?\Z")
LINE_REST = re.compile(rb"[^\r\n]*?(?=[ \t]+#|[ \t]+[\w.\-]+[ \t]*[=:]|[ \t]*\\?[\r\n]|[ \t]*\Z)")
VALUE_LINE = re.compile(rb"[ \t\-\"'\\]*[Vv]alue[\"'\\]*[ \t]*[:=]|[ \t]*<value>")
OPTION_VALUE = re.compile(rb"(?:[^\s\"'`\x1b]|[\"'`](?=\w))+")
OPTION = re.compile(rb"(?<![\w\-])--?([A-Za-z][\w.\-]+)[ \t]+(?![\-\s])")

CURL = (
    rb"\bcurl[ \t](?:[^\r\n|]*?[ \t])??(?:-[A-Za-z]*[uU]|--(?:proxy-)?user)[ \t=]*(?P<q>[\"'])?[^\s:\"']+:"
    rb"(?P<s>(?(q)(?:(?!(?P=q))[^\r\n])+|[^\s\"']+))"
)
# Forms of secrets: rule, what the lower-case text must contain, and a pattern whose group `s` is the secret.
EDGE = rb"(?<![A-Za-z0-9])"
ARGUMENTS = rb"[ \t](?:[^\r\n|;]*?[ \t])?"
ARGUMENT = rb"(?P<s>'[^'\r\n]+'|\"[^\"\r\n]+\"|[^\s\-]\S*)"
HEADER = rb"(?i)authorization[\"'\\]*[ \t]*[:=][ \t]*[\"'\\]*"
OTHER_NETWORKS = "|".join(name for name in NETWORKS if name != "tcp").encode()
FORMS = [
    ("aws", b"akia", rb"AKIA[A-Z0-9]{12,}[\"'\s:,=]{1,5}(?P<s>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"),
    ("aws", b"asia", rb"ASIA[A-Z0-9]{12,}[\"'\s:,=]{1,5}(?P<s>[A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"),
    ("aws", b"akia", EDGE + rb"(?P<s>AKIA[A-Za-z0-9]{8,})"),
    ("aws", b"asia", EDGE + rb"(?P<s>ASIA[A-Z0-9]{12,})"),
    ("aws", b"iqoj", EDGE + rb"(?P<s>IQoJ[A-Za-z0-9+/=%]{40,})"),
    ("aws", b"fwog", EDGE + rb"(?P<s>FwoG[A-Za-z0-9+/=%]{40,})"),
    ("aws", b"fqog", EDGE + rb"(?P<s>FQoG[A-Za-z0-9+/=%]{40,})"),
    ("kubernetes", b"k8s-aws", EDGE + rb"(?P<s>k8s-aws-v1\.[\w\-]{8,})"),
    ("private-key", b"ls0tls1crudjtib", rb"LS0tLS1CRUdJTiB[EFPQST](?P<s>[A-Za-z0-9+/=]{20,})"),  # in base64
    ("jwt", b"eyj", EDGE + rb"(?P<s>eyJ[A-Za-z0-9_\-+/=.]{9,})"),
    ("github", b"gh", EDGE + rb"(?P<s>gh[opsur]_[A-Za-z0-9]{8,})"),
    ("github", b"_pat_", EDGE + rb"(?P<s>github_pat_[A-Za-z0-9_]{8,})"),
    ("gitlab", b"gl", EDGE + rb"(?P<s>gl(?:pat|dt|rt|cbt|ptt|ft|soat|agent|oas|imt|ffct)-[\w\-.]{8,})"),
    ("hugging-face", b"hf_", EDGE + rb"(?P<s>hf_[A-Za-z0-9]{9,})(?!_)"),
    ("hugging-face", b"api_org_", EDGE + rb"(?P<s>api_org_[A-Za-z0-9]{9,})(?!_)"),
    ("wandb", b"wandb_v1", EDGE + rb"(?P<s>wandb_v1_\w{8,})"),
    ("wandb", b"wandb", rb"wandb[ \t]+login[ \t]+(?:--\S+[ \t]+)*(?P<s>[0-9a-f]{40})"),
    ("slack", b"xox", EDGE + rb"(?P<s>xox[a-z](?:\.xox[a-z])?-[\w\-]{8,})"),
    ("slack", b"xapp", EDGE + rb"(?P<s>xapp-[\w\-]{8,})"),
    ("slack", b"slack", rb"hooks\.slack\.com/services/(?P<s>[\w/]{8,})"),
    ("api-key", b"sk-", EDGE + rb"(?P<s>sk-(?=[A-Za-z_\-]*[0-9])[\w\-]{9,})"),
    ("api-key", b"gsk_", EDGE + rb"(?P<s>gsk_[A-Za-z0-9]{12,})"),
    ("api-key", b"_v1_", EDGE + rb"(?P<s>dop_v1_[A-Za-z0-9]{12,})"),
    ("api-key", b"k_live_", EDGE + rb"(?P<s>[rs]k_live_[A-Za-z0-9]{12,})"),
    ("ngc", b"nvapi-", EDGE + rb"(?P<s>nvapi-[\w\-]{6,})"),
    ("google", b"aiza", EDGE + rb"(?P<s>AIza[\w\-]{8,})"),
    ("google", b"ya29.", EDGE + rb"(?P<s>ya29\.[\w\-.]{7,})"),
    ("google", b"gocspx-", EDGE + rb"(?P<s>GOCSPX-[\w\-]{8,})"),
    ("package", b"npm_", EDGE + rb"(?P<s>npm_(?=[A-Za-z]*[0-9])[A-Za-z0-9]{16,})"),
    ("package", b"pypi-", EDGE + rb"(?P<s>pypi-(?=[A-Za-z_\-]*[0-9])[\w\-]{16,})"),
    ("package", b"_pat_", EDGE + rb"(?P<s>dckr_pat_[\w\-]{8,})"),
    ("munge", b"munge:", rb"(?P<s>MUNGE:[A-Za-z0-9+/=]{20,}:?)"),
    ("password-hash", b"$", rb"(?P<s>\$(?:1|2[abxy]|5|6|7|y|gy|apr1)\$[./A-Za-z0-9$=,]{8,})"),
    ("url", b"://", rb"://[^\s/:\"'<>]{0,200}:(?P<s>[^\s/\"'<>]*[^\s/\"'<>@])@"),
    ("url", b"://", rb"://[^\s/:@\"'<>]{0,200}:(?!\d{1,5}/)(?P<s>[^\s\"'<>@]+)@"),
    (
        "address",
        b"@",
        rb"(?<![\w.\-/:@])(?://)?(?:iscsi:|nbd:)?[\w.%+~\-]+:(?P<s>[^\s@/\"'\\(){}\[\],;]{3,})@(?!sha\d|(?:"
        + OTHER_NETWORKS
        + rb")\d*\b)(?:tcp\(|[\w.\-]+(?=[\s:/\"',]|\Z))",
    ),
    ("header", b"authorization", HEADER + rb"(?:bearer|basic|token|negotiate|apikey)[ \t]+(?P<s>[^\s\"'\\,;]+)"),
    (
        "header",
        b"authorization",
        HEADER + rb"(?:digest|aws4-hmac-sha256|hmac)[ \t]+(?P<s>(?:=\\*\"[^\"\r\n]*\"|[^\r\n\"'])+)",
    ),
    ("header", b"bearer", rb"\b[Bb](?:earer|EARER)[ \t]+(?P<s>(?=\S*(?:[0-9=]|[a-z][A-Z]))[A-Za-z0-9._~+/\-=]{8,})"),
    ("header", b"basic", rb"\b[Bb](?:asic|ASIC)[ \t]+(?P<s>(?=\S*(?:[0-9=]|[a-z][A-Z]))[A-Za-z0-9._~+/\-=]{8,})"),
    (
        "cookie",
        b"cookie",
        rb"(?i)\b(?:set-)?cookie2?[\"'\\]*[ \t]*[:=][ \t]*[\"'\\]*(?P<s>[^\s=;,\"'\\]+=[^\r\n\"'\\]+)",
    ),
    ("netrc", b"login", rb"(?i)\blogin[ \t]+\S+\s+password[ \t]+(?P<s>\S+)"),
    ("sql", b"identified", rb"(?i)\bidentified[ \t]+(?:with[ \t]+\S+[ \t]+)?(?:by|as)[ \t]+[\"'](?P<s>[^\"'\r\n]+)"),
    ("sql", b"password", rb"(?i)\bpassword[ \t]+[\"'](?P<s>[^\"'\r\n]+)"),
    ("kernel", b"set_cred", rb"systemd\.set_credential\w*=[^:\s]+:(?P<s>[^\s\"]+)"),
    ("cifs", b"user", rb"\buser(?:name)?=[^,%\s]+%(?P<s>[^,\s]+)"),
    ("program", b"mysql", rb"\bmysql\w*" + ARGUMENTS + rb"-p" + ARGUMENT),
    ("program", b"mariadb", rb"\bmariadb[\w\-]*" + ARGUMENTS + rb"-p" + ARGUMENT),
    ("program", b"sshpass", rb"\bsshpass[ \t]+(?:-\S+[ \t]+)*?-p[ \t]*" + ARGUMENT),
    ("program", b"curl", CURL),
    ("program", b"ipmitool", rb"\bipmitool" + ARGUMENTS + rb"-P[ \t]+" + ARGUMENT),
    ("program", b"redis-cli", rb"\bredis-cli" + ARGUMENTS + rb"-a[ \t]+" + ARGUMENT),
    ("program", b"ldap", rb"\bldap(?:search|modify|add|delete|whoami|passwd)" + ARGUMENTS + rb"-w[ \t]+" + ARGUMENT),
    ("program", b"login", rb"\blogin" + ARGUMENTS + rb"-p[ \t]+" + ARGUMENT),
    ("program", b"smb", rb"\bsmb(?:client|get)" + ARGUMENTS + rb"-U[ \t]*[^\s%]+%(?P<s>\S+)"),
]
FORM_PATTERNS = [(rule, gate, re.compile(pattern)) for rule, gate, pattern in FORMS]

# Hints in the kind of a line, which lacks what `LEFT_OUT` has: `srt` is `secret`. Each begins with a literal: only then
# the search is fast. The second pattern must match the kind as well.
LEFT_OUT = b"0123456789abcdefABCDEF()[]{}.,;/\\|+*#!~^`?&\x1b"
LOWER = bytes(range(256)).lower()
AFTER = rb"(?:[a-z_\-]{0,60}[\"']*(?:[ \t]*[:=>]|<nm>|[ \t]*[\"']*vlu)|[a-z]{0,8}[\"']*[ \t\r]*$)"
HINTS = [
    (re.compile(hint.replace(b"~", AFTER), re.MULTILINE), re.compile(confirm))
    for hint, confirm in (
        (rb"p(?:ss~|w~|sswor +[\"']|i-(?:(?<=nvpi-)|(?<=pypi-))|m_(?<=npm_)|p-(?<=xpp-))", b""),
        (rb"pivrsion[\"']*: *[\"']*v[\"']*[ \t\r]*$", b""),
        (rb"psswor[ \t]", rb"login"),
        (rb"k(?:y~|(?<=tok)n~|(?<=ook)i~|(?<=psk)~|-(?<=sk-)|s-ws|sslk|in[\"']*: *[\"']*srt)", b""),
        (rb"srt~", b""),
        (rb"uth~", b""),
        (rb"g(?:h[opsur]_|l[a-z]{1,5}-|in[ \t](?<=wn login[ \t])|(?<=sig)[a-z]{0,6}[\"']*[ \t]*[=:]|sk_)", b""),
        (rb"--[a-z_\-]*?(?:pss|pw|srt|tokn|ky|uth)[a-z_\-]*[ \t]", b""),
        (rb" --?[a-z\-]*[puw]", rb"mysql|mri|sshpss|url|ipmitool|lp|login|sm"),
        (rb"ris-li", b""),
        (rb"xox[a-z]?-", b""),
        (rb"si[ \t]", b""),
        (rb"rr[ \t]", b""),
        (rb"intii[ \t]", b""),
        (rb"j(?:(?<=yj)|ti(?<=rujti))", b""),
        (rb"q(?:oj(?<=iqoj)|og)", b""),
        (rb"wog", b""),
        (rb"mung:", b""),
        (rb"gospx", b""),
        (rb"\$[a-z]{0,4}\$", b""),
        (rb"_(?:org|v|liv)_", b""),
        (rb"%", rb"usr(?:nm)?=[^%\s]{1,60}%"),
        (rb"@", rb":[^\s@]*@"),
        (rb"privt ky", b""),
        (rb"<<", b""),
        (rb"_pt_", b""),
    )
]
# Hints of which a kind has too little; searched in the text itself.
TEXT_HINTS = [
    re.compile(hint)
    for hint in (rb"A(?:KIA|SIA|Iza)", rb"red(?<=[Cc]red)", rb"RED(?<=CRED)", rb"_(?<=hf_)", rb"ya29\.")
]
MAX_SEEN = 4 << 20  # bytes of kinds without a hint that are remembered
KEY_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
KEY_END = re.compile(rb"-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----")
KEY_EDGE = re.compile(rb"(-----(?:BEGIN|END) [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----)")
KEY_TEXT = re.compile(
    rb"(?<![*A-Za-z0-9+/])(?:[A-Za-z0-9+/]|\\/){16,}={0,2}|(?<![^\s\"'n])[A-Za-z0-9+/]+={0,2}(?=\s*\Z|\\+[nr]|[\"'])"
)

# The state between two lines: lines of a private key that may follow, another secret over several lines, how many lines
# it may have, an object of Kubernetes that may be a Secret.
NOTHING = (0, None, 0, None)
SCALAR = re.compile(rb"[\"']?(.*?)[\"']?,?[ \t\r]*\Z")
SECRET_OBJECT = re.compile(rb"\"kind\\*\"\s*:\s*\\*\"Secret(?:List)?\\*\"")
OBJECT_DATA = re.compile(rb"\"(?:data|stringData)\\*\"\s*:\s*\{")
PAIR = re.compile(rb"\s*(\\*\")(?:(?!\1)[^\r\n])*\1\s*:\s*(\\*\")((?:\\.|(?!\2)[^\r\n])*?)\2\s*,?")


class Redactor:
    """Redacts one stream. Text goes in with `feed`, redacted whole lines come out; `close` returns the rest.

    The result does not depend on how the text is divided into blocks. `log` has an entry for every different secret of
    a rule: rule, number of its first line, count, mark. Beyond the limit, one entry without a mark has all further ones
    of a rule. With the kind `arguments` lines are command lines, and each is parsed.
    """

    def __init__(self, salt: bytes, kind: str = "text") -> None:
        self.key, self.every_line = Key(salt), kind == "arguments"
        self.rest = b""
        self.lines = 0  # lines that were returned
        self.state: "State" = NOTHING
        self.states: "dict[int, State]" = {}  # before the lines of a text, unless it is NOTHING
        self.is_cut = False  # the next text continues a line
        self.seen: "set[bytes]" = set()
        self.seen_bytes = 0
        self.line = 1  # number of the first line of the unit
        self.found: "dict[tuple[str, str], list[int]]" = {}

    @property
    def log(self) -> "list[tuple[str, int, int, str]]":
        return sorted(
            [(rule, line, count, mark) for (rule, mark), (line, count) in self.found.items()],
            key=lambda entry: (entry[1], entry[0], entry[3]),
        )

    def feed(self, block: bytes) -> bytes:
        """The redacted lines; those that may be part of a secret, depending on later lines, are kept back."""
        data = self.rest + block
        end = data.rfind(b"\n") + 1
        if not end and len(data) < LONGEST_LINE:
            self.rest = data
            return b""
        end = end or self.cut(data)
        redacted = self.redact(data[:end])
        self.is_cut = not redacted.endswith(b"\n")
        last = len(redacted) if self.is_cut else self.keep(redacted)
        self.rest = redacted[last:] + data[end:]
        self.lines += redacted.count(b"\n", 0, last)
        return redacted[:last]

    def keep(self, text: bytes) -> int:
        """Where the lines start that are read again with the next block: the last one, whose value may follow.

        With it all lines that may belong to a private key whose end may follow. The state goes back to that line.
        """
        end, start, count = len(text), text.rfind(b"\n", 0, -1) + 1, 1
        number = text.count(b"\n") - 1 if self.states else 0
        while start and count < LONGEST_KEY and KEY_TEXT.fullmatch(text[start:end].strip()):
            before = text.rfind(b"\n", 0, start - 1) + 1
            if number - count in self.states or not KEY_TEXT.fullmatch(text[before:start].strip()):
                break
            end, start, count = start, before, count + 1
        self.state = self.states.get(number - count + 1, NOTHING) if self.states else NOTHING
        return start

    def cut(self, data: bytes) -> int:
        """Where to cut a very long line: at a separator that is not part of a secret or in front of one."""
        position = len(data) - NEAR
        for _ in range(200):
            position = max(data.rfind(each, 0, position) for each in (b" ", b",", b"}", b"\0")) + 1
            before, after = data[max(0, position - NEAR) : position], data[position : position + NEAR]
            scratch = Redactor(b"")
            if position <= 1 or scratch.redact(before) + scratch.redact(after) == scratch.redact(before + after):
                break
            position -= 1
        return position if position > 1 else len(data) - NEAR

    def close(self) -> bytes:
        """The rest."""
        redacted, self.rest = self.redact(self.rest), b""
        self.lines += redacted.count(b"\n")
        return redacted

    def redact(self, text: bytes) -> bytes:
        """Redact whole lines."""
        self.states = {}
        chosen = self.chosen(text)
        if not chosen and self.state == NOTHING:
            return text
        lines = text.split(b"\n")
        self.redact_spans(lines, chosen)
        end = 0
        for start in chosen:
            if start < end:
                continue
            end = start + 1
            while end < len(lines) and VALUE_LINE.match(lines[end]):  # it belongs to the name in the line above
                end += 1
            self.line = self.lines + start + 1
            unit = b"\n".join(lines[start:end])
            for _ in range(5):
                # Nothing may hide the edges of a private key.
                parts = KEY_EDGE.split(unit) if b"PRIVATE KEY" in unit else [unit]
                parts[::2] = map(self.redact_unit, parts[::2])
                before, unit = unit, b"".join(parts)
                if before == unit:
                    break
            lines[start:end] = unit.split(b"\n")
        return b"\n".join(lines)

    def chosen(self, text: bytes) -> "list[int]":
        """The indices of the lines with a hint."""
        if self.every_line:
            return list(range(text.count(b"\n") + 1))
        kinds = text.translate(LOWER, LEFT_OUT).split(b"\n")
        hinted = self.hinted(set(kinds))
        found = [index for index, kind in enumerate(kinds) if kind in hinted] if hinted else []
        more = {text.count(b"\n", 0, match.start()) for hint in TEXT_HINTS for match in hint.finditer(text)}
        return sorted(more.union(found)) if more else found

    def hinted(self, kinds: "set[bytes]") -> "set[bytes]":
        """The kinds with a hint. Logs repeat themselves, so those without one are remembered."""
        kinds -= self.seen
        joined = b"\n".join(kinds)
        found = set()
        for hint, confirm in HINTS if kinds else ():
            for match in hint.finditer(joined):
                start, end = joined.rfind(b"\n", 0, match.start()) + 1, joined.find(b"\n", match.end())
                kind = joined[start : len(joined) if end < 0 else end]
                if confirm.search(kind):
                    found.add(kind)
        self.seen |= kinds - found
        self.seen_bytes += len(joined)
        if self.seen_bytes > MAX_SEEN:
            self.seen, self.seen_bytes = set(), 0
        return found

    def mark(self, rule: str, secret: bytes, text: bytes = b"", start: int = 0) -> bytes:
        """The mark of a secret, noted in the log with its line; `start` is its place in the text of the unit."""
        digits = self.key.code(secret).hex()[:8]
        mark = MASK + digits
        listed = mark if (rule, mark) in self.found or len(self.found) < MAX_REDACTIONS else ""
        entry = self.found.get((rule, listed))
        if entry is None:
            entry = self.found[rule, listed] = [self.line + text.count(b"\n", 0, start), 0]
        elif entry[0] > self.line:
            entry[0] = min(entry[0], self.line + text.count(b"\n", 0, start))
        entry[1] += 1
        return mark.encode()

    def redact_unit(self, text: bytes) -> bytes:
        """Redact a line with a hint, or two that belong together."""
        lower = text.lower()
        for rule, gate, pattern in FORM_PATTERNS:
            if gate in lower:
                text = self.replace(rule, pattern, text)
        if b"Secret" in text and SECRET_OBJECT.search(text):
            text = self.redact_object(text)
        text = self.redact_named("setting", SETTING, value_bounds, text)
        return self.redact_named("option", OPTION, argument_bounds, text) if b" -" in text or text[:1] == b"-" else text

    def replace(self, rule: str, pattern: "Pattern[bytes]", text: bytes) -> bytes:
        """Replace the group `s` wherever a pattern matches."""

        def marked(found: "Match[bytes]") -> bytes:
            secret = found.group("s")
            left = REDACTED.sub(b"", secret)
            if not left or (left != secret and b"=" not in left) or REFERENCE.fullmatch(secret):
                return found.group()
            start, end = found.start("s") - found.start(), found.end("s") - found.start()
            whole = found.group()
            return whole[:start] + self.mark(rule, secret, text, found.start("s")) + whole[end:]

        return pattern.sub(marked, text)

    def redact_named(self, rule: str, pattern: "Pattern[bytes]", bounds: "Bounds", text: bytes) -> bytes:
        """Replace the values of secret settings, `password=x`, or the arguments of secret options, `--password x`."""
        parts, done = [], 0
        found = pattern.search(text)
        while found:
            position = found.end(1)
            name = found.group(1).decode("ascii")
            if is_secret_name(name):
                start, end, quote = bounds(text, found, is_vague(name))
                secret = text[start:end]
                if secret and self.is_value(name, secret):
                    parts += [text[done:start], quote, self.mark(rule, secret, text, start), quote]
                    done = position = end
            found = pattern.search(text, position)
        return b"".join(parts) + text[done:]

    def is_value(self, name: str, value: bytes) -> bool:
        """Whether a value of a secret setting is a secret, and not a mark, a reference or a location."""
        if REDACTED.search(value) or value.lower() in NOT_VALUES:
            return False
        if any(form.fullmatch(value) for form in (REFERENCE, LOCATION, NAME_SERVICES, BLOCK_SCALAR)):
            return False
        if not is_vague(name):
            return name != "PWD" or value[:1] != b"/"  # in a log of sudo the working directory
        if name.lower() in ("pass", "pw"):
            return not value.isdigit()
        return bool(RANDOM.fullmatch(value))

    def redact_object(self, text: bytes) -> bytes:
        """Replace the data of a Kubernetes Secret that is one line of JSON."""
        parts, done = [], 0
        for start in [found.end() for found in OBJECT_DATA.finditer(text)]:
            pair = PAIR.match(text, start)
            while pair:
                if pair.group(3) and not REDACTED.fullmatch(pair.group(3)):
                    mark = self.mark("kubernetes", pair.group(3), text, pair.start(3))
                    parts += [text[done : pair.start(3)], mark]
                    done = pair.end(3)
                pair = PAIR.match(text, pair.end())
        return b"".join(parts) + text[done:]

    def redact_spans(self, lines: "list[bytes]", chosen: "list[int]") -> None:
        """Replace secrets over several lines. The number of lines stays, so that line numbers are right."""
        opening = [index for index in chosen if opens(lines[index])]
        index, count = 0, len(lines) - (not lines[-1])
        while index < count:
            if self.state == NOTHING:
                index = next((each for each in opening if each >= index), count)
                if index == count:
                    return
            else:
                self.states[index] = self.state
            self.redact_line(lines, index)
            index += 1

    def redact_line(self, lines: "list[bytes]", index: int) -> None:
        """Redact a line of a secret over several lines, or the line that opens one."""
        in_key, span, left, manifest = self.state
        line = lines[index]
        if span:
            part = (0, len(line), False) if self.is_cut and index == 0 else span.part(line)
            if part:
                lines[index] = self.mark_part(line, part[0], part[1], index)
                self.state = (0, None, 0, manifest) if part[2] or left <= 1 else (0, span, left - 1, manifest)
                return
        if in_key or b"PRIVATE KEY" in line:
            if not in_key and KEY_END.search(line) and not KEY_BEGIN.search(line):
                self.redact_before(lines, index)
            lines[index], in_key = self.redact_key(line, index, in_key)
            self.state = (in_key, None, 0, manifest)
            return
        manifest, span = follow_manifest(manifest, line)
        span = span or opened(line)
        self.state = (0, span, span.longest if span else 0, manifest)

    def mark_part(self, line: bytes, start: int, end: int, number: int) -> bytes:
        """A line in which a part is replaced, apart from quotes around it and a comma after it."""
        found = SCALAR.match(line, start, end)
        value = found.group(1) if found else b""
        if not found or not value or REDACTED.fullmatch(value) or BLOCK_SCALAR.fullmatch(value):
            return line
        self.line = self.lines + number + 1
        return line[: found.start(1)] + self.mark("setting", value) + line[found.end(1) :]

    def redact_key(self, line: bytes, number: int, in_key: int) -> "tuple[bytes, int]":
        """Replace what belongs to a private key, which may be in one line; returns also how many lines may follow."""
        parts, position = [], 0
        while True:
            edge = (KEY_END if in_key else KEY_BEGIN).search(line, position)
            body = line[position : edge.start() if edge else len(line)]
            parts.append(self.mark_key(body, number) if in_key else body)
            if not edge:
                return b"".join(parts), max(0, in_key - 1)
            parts.append(edge.group())
            position, in_key = edge.end(), 0 if in_key else LONGEST_KEY

    def redact_before(self, lines: "list[bytes]", index: int) -> None:
        """Replace the part of a private key in front of its end, whose begin was not read."""
        for number in range(index - 1, max(-1, index - LONGEST_KEY), -1):
            if not KEY_TEXT.fullmatch(lines[number].strip()):
                break
            lines[number] = self.mark_key(lines[number], number)

    def mark_key(self, text: bytes, number: int) -> bytes:
        self.line = self.lines + number + 1
        return KEY_TEXT.sub(lambda found: self.mark("private-key", found.group()), text)


def opens(line: bytes) -> bool:
    """Whether a secret over several lines may begin in a line."""
    return b"PRIVATE KEY" in line or MANIFEST.match(line) is not None or opened(line) is not None


def argument_bounds(text: bytes, found: "Match[bytes]", _vague: bool) -> "tuple[int, int, bytes]":
    """As `value_bounds`, for the argument of an option."""
    value = QUOTED.match(text, found.end()) or OPTION_VALUE.match(text, found.end())
    return (*value.span(value.lastindex or 0), b"") if value else (0, 0, b"")


def value_bounds(text: bytes, found: "Match[bytes]", vague: bool) -> "tuple[int, int, bytes]":
    """Start and end of the value of a setting, and the quotes that a mark needs there."""
    start = found.end()
    quoted = QUOTED.match(text, start)
    if quoted:
        return (*quoted.span(quoted.lastindex or 0), b"")
    separator = found.group(2)
    at = found.start() - 1
    around = QUOTED.match(text, at - (text[at - 1 : at] == b"\\")) if at >= 0 and separator == b"=" else None
    if around:  # "NAME=value with blanks"
        rest = LINE_REST.match(text, start, around.end(around.lastindex or 0))
        return start, rest.end() if rest else start, b""
    if separator.rstrip().endswith(b">") and b"=" not in separator:  # XML
        end = text.find(b"<", start)
        return start, end if end >= 0 else start, b""
    line_start = text.rfind(b"\n", 0, found.start()) + 1
    if not vague and not separator.lstrip().startswith(b'"') and LINE_START.match(text, line_start, found.start()):
        is_shell = separator.endswith(b"=")  # then a value ends at a blank
        rest = (OPTION_VALUE if is_shell else LINE_REST).match(text, start)
        if rest:
            return start, rest.end(), b""
    value = UNQUOTED.match(text, start)
    end = value.end() if value else start
    is_json = separator.startswith(b'"') and b":" in separator
    return start, end, b'"' if is_json else b""
