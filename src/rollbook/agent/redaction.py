"""Masks secrets before they leave the host: in the environment, the kernel's command line and mounts.

Values are masked by the name of the setting (`password=`), by their position in an address (`user:password@host`) and
by their form (access keys, tokens). Masking too much loses a detail; masking too little publishes a secret. No regular
expressions: importing `re` is too expensive on every host.
"""

MASK = "***"
# A name is secret if one of its parts ends in one of these, or if its last part is one of the words.
ENDINGS = tuple(
    "password passwords passwd passphrase passcode secret token apikey accesskey secretkey accountkey".split()
)
WORDS = set("pass pwd pw auth authorization cookie cred creds credential key psk private sig signature".split())
NOT_SECRET = set("file path dir directory name".split())  # as the last part: where a secret is, not the secret
# Any variable with one of these in its name is masked.
SECRET_VARIABLES = "KEY TOKEN SECRET PASS CRED AUTH COOKIE SIGNATURE PRIVATE SESSION".split()
TOKENS = tuple(
    "AKIA ASIA AIza eyJ ghp_ gho_ ghs_ ghu_ github_pat_ glpat- hf_ npm_ nvapi- pypi- sk- xoxb- xoxp- ya29.".split()
)
LOOKS_SECRET = TOKENS + ("Bearer", "Basic", "bearer", "basic")
SHORTEST_TOKEN = 12
BETWEEN_TOKENS = " \t\r\n\"'`,;:=&?/|()[]{}<>@#"
USER = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._%+~\\-"
NETWORKS = ("tcp", "o2ib", "kfi", "gni", "ptlf", "lo")  # of Lustre: 10.0.0.1@o2ib:10.0.0.2@o2ib:/scratch
PROTOCOLS = ("iscsi:", "nbd:", "nfs:", "nfs4:", "fcoe:", "http:", "https:", "ftp:", "cifs:")


def is_secret(name: str) -> bool:
    """Whether a setting of that name holds a secret: `rd.iscsi.password`, `--api-key`, `AccountKey`."""
    parts = name.strip(" \t\"'{-").rstrip("0123456789").lower()
    for separator in "_-: ":
        parts = parts.replace(separator, ".")
    words = parts.split(".")
    if words[-1] in NOT_SECRET:
        return False
    return words[-1] in WORDS or any(word.endswith(ENDINGS) for word in words)


def mask_tokens(text: str) -> str:
    """Mask words that look like access keys or tokens, and what follows `Bearer` and `Basic`."""
    if not any(token in text for token in LOOKS_SECRET):
        return text
    found, word, secret = [], "", False
    for letter in text + "\n":
        if letter not in BETWEEN_TOKENS:
            word += letter
            continue
        token = len(word) >= SHORTEST_TOKEN and word.startswith(TOKENS)
        found.append(MASK if token or (secret and word) else word)
        secret = word in ("Bearer", "Basic", "bearer", "basic") or (secret and not word)
        found.append(letter)
        word = ""
    return "".join(found)[:-1]


def mask_address(word: str) -> str:
    """Mask the user information in addresses: `scheme://user:password@host`, `user:password@host`, `iscsi:…@host`."""
    first, *rest = word.split("://")
    if not rest:
        return mask_plain_address(word)
    parts = [first]
    for part in rest:
        server = part.partition("/")[0]
        if "@" not in server and ":" in server and "@" in part and "[" not in server:
            server = part[: part.rindex("@") + 1]  # a slash in the password
        host = server.rpartition("@")
        parts.append((MASK + "@" + host[2] if host[1] else server) + part[len(server) :])
    return "://".join(parts)


def mask_plain_address(word: str) -> str:
    """Mask `user:password` in front of the last `@`, unless the word is a list of Lustre addresses."""
    left, at, right = word.rpartition("@")
    if not at or (right.startswith(NETWORKS) and "(" not in right):
        return word
    name, equals, value = left.rpartition("=") if "=" in left.partition(":")[0] else ("", "", left)
    start = value[: len(value) - len(value.lstrip("/\"'"))]
    value = value[len(start) :]
    for protocol in PROTOCOLS:
        if value.startswith(protocol):
            start, value = start + protocol, value[len(protocol) :]
    user, colon, password = value.partition(":")
    if not colon or not password or not user or user.strip(USER):
        return word
    return name + equals + start + MASK + at + right


def mask_settings(text: str, separators: str, colon: bool = False) -> str:
    """Mask the values of secret settings, and addresses and tokens, in a text of settings.

    `separators` are tried from the first to the last: a password may contain those that come later. With `colon`,
    `name: value` is a setting too.
    """
    name, equals, _ = text.partition("=")
    if colon and ":" in name and "://" not in text:
        name, equals = text.partition(":")[0], ": " if ": " in text else ":"
    nested = separators[:1] in text if separators else False
    if equals and is_secret(name) and not nested and not any(each in name.strip() for each in separators):
        return name + equals + MASK
    if not separators:
        return mask_tokens(mask_address(text))
    parts = text.split(separators[0])
    return separators[0].join([mask_settings(part, separators[1:], colon) for part in parts])


def mask_variable(name: str, value: str) -> str:
    """The value of an environment variable, masked."""
    if any(word in name.upper() for word in SECRET_VARIABLES) or "PRIVATE KEY-----" in value:
        return MASK
    return mask_settings(mask_tokens(value), ";&?,\n ", colon=True)


def mask_kernel_arguments(text: str) -> str:
    """The kernel's command line, masked. Double quotes keep blanks inside an argument."""
    body = text.rstrip("\n")
    pieces = body.split('"')
    for index in range(1, len(pieces), 2):
        pieces[index] = pieces[index].replace(" ", "\0")
    words = [mask_kernel_argument(word) for word in '"'.join(pieces).split(" ")]
    return " ".join(words).replace("\0", " ") + text[len(body) :]


def mask_kernel_argument(word: str) -> str:
    """One argument of the kernel, masked."""
    name, equals, value = word.partition("=")
    if equals and name.strip('"').startswith("systemd.set_credential"):
        masked = name + equals + value.partition(":")[0] + ":" + MASK
    elif equals and is_secret(name):
        masked = name + equals + MASK
    else:
        return mask_settings(word, ";&?,")
    return masked + ('"' if masked.count('"') % 2 else "")


def mask_mounts(text: str) -> str:
    """Sources and options of mounts, masked: fields are separated by blanks, options by commas."""
    lines, tokens = text.split("\n"), any(token in text for token in LOOKS_SECRET)
    for index, line in enumerate(lines):
        if tokens or "@" in line or "=" in line:
            lines[index] = " ".join([mask_mount_field(field) for field in line.split(" ")])
    return "\n".join(lines)


def mask_mount_field(field: str) -> str:
    """One field of a mount, masked: a source, or options."""
    options = field.split(",")
    for index, option in enumerate(options):
        name, equals, value = option.partition("=")
        if equals and name in ("user", "username") and "%" in value:  # CIFS: user=name%password
            options[index] = name + equals + value.partition("%")[0] + "%" + MASK
        else:
            options[index] = mask_settings(option, "")
    return ",".join(options)


MASKED_FILES = {
    "/proc/cmdline": mask_kernel_arguments,
    "/proc/mounts": mask_mounts,
    "/proc/self/mounts": mask_mounts,
    "/proc/self/mountinfo": mask_mounts,
    "/proc/self/mountstats": mask_mounts,
}


def mask_file(path: str, data: bytes) -> bytes:
    """The content of a file, masked if it is one that may hold secrets."""
    if path not in MASKED_FILES:
        return data
    text = data.decode("utf-8", "surrogateescape")
    return MASKED_FILES[path](text).encode("utf-8", "surrogateescape")
