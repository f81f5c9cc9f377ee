# SPDX-License-Identifier: Apache-2.0
"""Just enough reading of C++ to find includes and measure functions.

Not a parser: code is first reduced to its tokens' text (comments, strings and preprocessor lines
blanked, line breaks kept), then braces are matched. Pure functions of text.
"""

import re

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE)

_TOKEN = re.compile(
    r'//(?:[^\n\\]|\\.|\\\n)*'                        # line comment
    r'|/\*.*?\*/'                                     # block comment
    r'|R"([^()\\\s]{0,16})\(.*?\)\1"'                 # raw string
    r'|"(?:[^"\\\n]|\\.|\\\n)*"'                      # string
    r"|(?<![0-9A-Fa-f])'(?:[^'\\\n]|\\.)+'"           # character, not a digit separator
    r'|^[ \t]*#(?:[^\n\\]|\\\n|\\.)*',                # preprocessor line with continuations
    re.DOTALL | re.MULTILINE)

_CONTAINER = re.compile(r'\b(namespace|class|struct|union|enum)\b|\bextern\s*$')
_BODY_WORDS = {"const", "noexcept", "override", "final", "mutable", "try", "volatile"}


def includes(text):
    """List of (line number, path, is_system) of each #include outside comments."""
    blanked = re.sub(r'/\*.*?\*/', lambda match: _blank(match.group()), text, flags=re.DOTALL)
    return [(blanked.count("\n", 0, match.start()) + 1, match.group(1) or match.group(2),
             match.group(2) is not None) for match in _INCLUDE.finditer(blanked)]


def _blank(text):
    return "\n" * text.count("\n")


def strip(text):
    """The code without comments, literals and preprocessor lines; line numbers stay."""
    def replace(match):
        found = match.group()
        literal = found.startswith(('"', "R", "'"))
        return ('""' if literal else " ") + _blank(found)
    return _TOKEN.sub(replace, text)


def functions(text):
    """List of (name, first line, last line) of each function body, tests' cases included.

    The first line is that of the signature. Lambdas belong to the function around them.
    """
    code = strip(text)
    found = []
    position, head = 0, 0  # `head`: where the text before the next brace starts.
    while position < len(code):
        character = code[position]
        if character in ";}":
            head = position + 1
        elif character == "(":
            position = _closing(code, position)
        elif character == "{":
            kind = _kind(code[head:position])
            if kind == "container":
                head = position + 1
            else:
                end = _closing(code, position)
                if kind == "function":
                    start = position - len(code[head:position].lstrip())
                    found.append((_name(code[head:position]), code.count("\n", 0, start) + 1,
                                  code.count("\n", 0, end) + 1))
                    head = end + 1
                position = end
        position += 1
    return found


def _closing(code, position):
    """Index of the bracket that closes the one at `position`; the end of the text if none does."""
    pairs = {"{": "}", "(": ")"}
    opening, closing = code[position], pairs[code[position]]
    depth = 0
    for index in range(position, len(code)):
        if code[index] == opening:
            depth += 1
        elif code[index] == closing:
            depth -= 1
            if depth == 0:
                return index
    return len(code) - 1


def _kind(head):
    """What a brace after `head` opens: "function", "container" (searched inside) or "value"."""
    text = re.sub(r'\btemplate\s*<[^{}]*?>\s*(?=\w|\[)', " ", head).strip()
    text = re.sub(r'^(public|private|protected)\s*:', "", text).strip()
    if "(" not in text:
        return "container" if _CONTAINER.search(text) or not text else "value"
    if _CONTAINER.match(text) and not re.search(r'\)\s*[\w\s]*$', text):
        return "container"  # class __attribute__((x)) Name
    last = re.search(r'(\w+|\S)\s*$', text).group(1)
    if last == ")" or last in _BODY_WORDS:
        return "function"
    if re.search(r'\)\s*(const|noexcept|override|final|\s)*->[^;{}()]*$', text):
        return "function"
    if last == "}":
        return "function"  # after a brace-initialised member: Foo::Foo() : a_{1} {
    return "value"


def _name(head):
    """The identifier before the first parenthesis, for messages."""
    match = re.search(r'([~\w:]+|operator\s*\S+)\s*\(', head)
    return match.group(1) if match else "?"
