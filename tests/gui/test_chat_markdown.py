"""Markdown as it streams: the same leaves however the text is cut, and only the open block is parsed again."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from app.markdown.highlight import lexer_for, lines_of
from app.markdown.leaves import CodeLeaf, RuleLeaf, Style, TableLeaf, TextLeaf, cut_units, units
from app.markdown.stream import MarkdownStream

DOCUMENT = """# Title **bold**

It costs $5 and $10, see https://example.org/a_b. Then
a second line with `code` 😀 **bold after emoji**.

- one
- two
  - nested

    deeper
- three

  ```py
  x = 1
  ```

1. first
2. second
10. tenth

> quote *it*
> more
>
> - in quote

| a | b |
|---|--:|
| 1 | 2 |
| 3 | `4` |

```python
def f():
    return \"\"\"
    - not a list
    \"\"\"
```

Setext
------

* * *

~~~
tilde ``` inside
~~~
    indented code

[ok](https://x.y) last
"""


def leaves_of(text):
    stream = MarkdownStream()
    stream.append(text, final=True)
    return stream.leaves


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=4, max_size=60))
def test_however_the_text_is_cut_the_leaves_are_the_same(sizes):
    stream, at, turn = MarkdownStream(), 0, 0
    while at < len(DOCUMENT):
        size = sizes[turn % len(sizes)]
        stream.append(DOCUMENT[at : at + size])
        at, turn = at + size, turn + 1
    stream.append("", final=True)
    assert stream.leaves == leaves_of(DOCUMENT)


def test_each_kind_of_block():
    leaves = leaves_of(DOCUMENT)
    assert [type(leaf) for leaf in leaves].count(CodeLeaf) == 4
    assert [type(leaf) for leaf in leaves].count(TableLeaf) == 1
    assert [type(leaf) for leaf in leaves].count(RuleLeaf) == 1
    assert isinstance(leaves[0], TextLeaf) and leaves[0].level == 1
    assert [leaf.marker for leaf in leaves if leaf.marker] == ["•", "•", "◦", "•", "1.", "2.", "10.", "•"]
    quoted = [leaf for leaf in leaves if leaf.quote]
    assert [leaf.indent for leaf in quoted] == [0, 1]


def test_dollars_stay_text_and_html_is_inert():
    (leaf,) = leaves_of("$5 and $10 <script>alert(1)</script> <b>x</b>")
    assert leaf.rich.text == "$5 and $10 <script>alert(1)</script> <b>x</b>"
    assert leaf.rich.spans == ()


def test_hostile_links_are_text():
    (leaf,) = leaves_of("[a](javascript:alert(1)) [b](file:///etc/passwd) [c](https://ok.example)")
    assert [span.href for span in leaf.rich.spans] == ["https://ok.example"]


def test_images_become_links_and_nothing_is_loaded():
    (leaf,) = leaves_of("![a cat](https://x.example/cat.png)")
    assert leaf.rich.text == "a cat"
    assert leaf.rich.spans[0].href == "https://x.example/cat.png"


def test_bare_addresses_are_links_without_their_punctuation():
    (leaf,) = leaves_of("see https://a.example/x(1), or (https://b.example).")
    assert [span.href for span in leaf.rich.spans] == ["https://a.example/x(1)", "https://b.example"]


def test_offsets_count_utf16_units():
    (leaf,) = leaves_of("😀 **b**")
    assert leaf.rich.spans[0].start == 3 and leaf.rich.spans[0].style == Style.BOLD
    assert units("a😀") == 3 and cut_units("a😀b", 1, 3) == "😀"


def test_an_open_fence_takes_lines_without_parsing():
    stream = MarkdownStream()
    stream.append("```python\n")
    before = stream.parsed_chars
    for number in range(500):
        stream.append(f"line {number}\n")
    assert stream.parsed_chars - before < 200
    assert isinstance(stream.leaves[0], CodeLeaf) and stream.leaves[0].code.count("\n") == 499
    assert not stream.leaves[0].closed
    stream.append("```\nafter", final=True)
    assert stream.leaves[0].closed and stream.leaves[1].rich.text == "after"


def test_a_closing_fence_that_is_half_written_is_not_shown():
    stream = MarkdownStream()
    stream.append("```\ncode\n")
    stream.append("``")
    assert stream.leaves[0].code == "code"


def test_an_open_table_parses_only_its_new_rows():
    stream = MarkdownStream()
    stream.append("| a | b |\n|---|---|\n")
    text = "".join(f"| row {number} | {number} |\n" for number in range(200))
    for at in range(0, len(text), 5):
        stream.append(text[at : at + 5])
    assert len(stream.leaves[0].rows) == 200
    assert stream.parsed_chars < 20 * len(text)
    stream.append("\nafter", final=True)
    assert stream.leaves == leaves_of("| a | b |\n|---|---|\n" + text + "\nafter")


def test_a_long_reply_parses_a_small_multiple_of_its_length():
    text = "A paragraph with **some** words and `code`.\n\n- an item\n- another\n\n```\nx\n```\n\n" * 300
    stream = MarkdownStream()
    for at in range(0, len(text), 12):
        stream.append(text[at : at + 12])
    assert stream.parsed_chars < 6 * len(text)


def test_settled_leaves_are_the_same_objects():
    stream = MarkdownStream()
    stream.append("one\n\ntwo\n\nthree")
    first = stream.leaves[0]
    stream.append(" and more\n\nfour")
    assert stream.leaves[0] is first
    assert stream.leaves[2].rich.text == "three and more"


def test_highlighting_keeps_every_line():
    lexer = lexer_for("python")
    assert lexer is not None and lexer_for("no such language") is None and lexer_for("") is None
    lines = list(lines_of(lexer, '\nx = "a"  # c\n\ny = 1\n'))
    assert len(lines) == 5
    assert {kind for _, _, kind in lines[1]} == {"string", "comment"}
    assert {kind for _, _, kind in lines[3]} == {"number"}
    assert lines[0] == () and lines[4] == ()


def test_an_endless_paragraph_is_broken_up():
    text = "words and **more** words " * 1000
    stream = MarkdownStream()
    for at in range(0, len(text), 80):
        stream.append(text[at : at + 80])
    stream.append("", final=True)
    assert stream.parsed_chars < 60 * len(text)
    assert len(stream.leaves) > 4
    assert [leaf.glued for leaf in stream.leaves] == [False] + [True] * (len(stream.leaves) - 1)
    shown = " ".join(leaf.rich.text for leaf in stream.leaves)
    assert shown.split() == text.replace("*", "").split()
    assert "".join(stream.source[leaf.start : leaf.end] for leaf in stream.leaves).split() == text.split()
