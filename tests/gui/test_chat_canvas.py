"""The painted message body: what is laid out again while it grows, selection, copying, links."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtWidgets import QApplication, QMenu

from app.views.blocks.canvas import Canvas
from app.views.blocks.code_block import CodeBlock
from app.views.blocks.table_block import TableBlock
from app.views.figures import duration


@pytest.fixture
def canvas(qtbot, installed_theme):
    made = Canvas()
    qtbot.addWidget(made)
    made.resize(600, 100)
    return made


def feed(canvas, text, size=7):
    """Stream a text into the canvas, ignoring the pace that protects the UI thread."""
    for at in range(0, len(text), size):
        canvas.append(text[at : at + size])
        canvas._next_update = 0.0
        canvas.refresh()


def test_only_the_last_block_is_laid_out_while_text_grows(canvas):
    canvas.set_text("", growing=True)
    canvas.height_for(600)
    paragraphs = "\n\n".join(f"Paragraph {number} with **some** words." for number in range(50))
    feed(canvas, paragraphs)
    layouts = [block.layouts for block in canvas.blocks]
    feed(canvas, "\n\nOne more paragraph that grows for a while, word by word, to its end.")
    assert len(canvas.blocks) == 51
    assert [block.layouts for block in canvas.blocks[:50]] == layouts
    assert all(count == 1 for count in layouts)


def test_code_and_tables_grow_in_place(canvas):
    canvas.set_text("", growing=True)
    feed(canvas, "```python\nx = 1\n")
    block = canvas.blocks[0]
    assert isinstance(block, CodeBlock)
    feed(canvas, "".join(f"y{number} = {number}\n" for number in range(200)))
    assert canvas.blocks[0] is block
    feed(canvas, "```\n\n| a | b |\n|---|---|\n| 1 | 2 |\n")
    table = canvas.blocks[1]
    assert isinstance(table, TableBlock)
    feed(canvas, "".join(f"| {number} | x |\n" for number in range(50)))
    assert canvas.blocks[1] is table and table.length == 52


def test_height_grows_with_the_text_and_widens_back(canvas):
    canvas.set_text("word " * 400)
    tall, wide = canvas.height_for(300), canvas.height_for(900)
    assert tall > 2 * wide
    assert canvas.height_for(300) == tall


def test_copy_gives_back_exactly_what_was_written(canvas):
    source = "# Title\n\nIt costs **$5**\n\n```py\nx = 1\n```\n"
    canvas.set_text(source)
    canvas.copy()
    assert QApplication.clipboard().text() == source


def test_a_selection_across_blocks_keeps_the_markdown_of_whole_blocks(canvas):
    canvas.set_text("first **one**\n\nsecond *two*\n\nthird `three`")
    canvas.height_for(600)
    canvas.select_all()
    assert canvas.selected_text() == "first **one**\n\nsecond *two*\n\nthird `three`"


def test_dragging_selects_text(canvas, qtbot):
    canvas.set_text("hello brave new world")
    canvas.resize(600, canvas.height_for(600))
    canvas.show()
    qtbot.mousePress(canvas, Qt.MouseButton.LeftButton, pos=QPoint(0, 10))
    qtbot.mouseMove(canvas, QPoint(30, 10))
    qtbot.mouseMove(canvas, QPoint(590, 10))
    qtbot.mouseRelease(canvas, Qt.MouseButton.LeftButton, pos=QPoint(590, 10))
    canvas.hide()
    canvas._select((0, 0), canvas._place_at(QPointF(590, 10)))
    assert canvas.selected_text() == "hello brave new world"


def test_double_click_selects_a_word(canvas, qtbot):
    canvas.set_text("hello brave world")
    canvas.resize(600, canvas.height_for(600))
    canvas.show()
    qtbot.mouseDClick(canvas, Qt.MouseButton.LeftButton, pos=QPoint(10, 10))
    canvas.hide()
    assert canvas.selected_text() == "hello"


def test_a_link_is_reported_not_opened(canvas, qtbot):
    canvas.set_text("[here](https://a.example/x) and more")
    canvas.resize(600, canvas.height_for(600))
    canvas.show()
    with qtbot.waitSignal(canvas.link_clicked) as blocker:
        qtbot.mouseClick(canvas, Qt.MouseButton.LeftButton, pos=QPoint(10, 10))
    canvas.hide()
    assert blocker.args == ["https://a.example/x"]


def test_the_copy_button_of_code_copies_the_code_alone(canvas):
    canvas.set_text("text\n\n```py\nx = 1\ny = 2\n```\n")
    canvas.height_for(600)
    block = canvas.blocks[1]
    assert isinstance(block, CodeBlock)
    block._copy.click()
    assert QApplication.clipboard().text() == "x = 1\ny = 2"


def test_raw_text_is_the_source_line_by_line(canvas):
    source = "# Title\n\n**bold**"
    canvas.set_text(source)
    canvas.set_plain(True)
    assert [block.text for block in canvas.blocks] == ["# Title", "", "**bold**"]
    canvas.set_plain(False)
    assert canvas.blocks[0].text == "Title" and canvas.source == source


def test_long_text_arrives_in_slices(canvas):
    text = "A line of words.\n\n" * 2000
    canvas.set_text(text)
    assert canvas.busy and canvas.source == text
    rounds = 0
    while canvas.busy:
        canvas._next_update = 0.0
        canvas.refresh()
        rounds += 1
    assert rounds >= 3 and len(canvas.blocks) == 2000


def test_painting_touches_every_kind_of_block(canvas):
    canvas.set_text(
        "# T\n\n> quote\n\n- item `code`\n\n---\n\n| a |\n|---|\n| b |\n\n```py\nx = 'long' "
        + "y" * 300
        + "\n```\n\nend",
        growing=True,
    )
    canvas.resize(400, canvas.height_for(400))
    canvas.select_all()
    image = canvas.grab().toImage()
    colors = {image.pixelColor(x, y).name() for x in range(0, 400, 3) for y in range(0, image.height(), 3)}
    assert len(colors) > 10


def test_switching_the_theme_keeps_the_text(canvas, installed_theme):
    canvas.set_text("# T\n\nwords")
    height = canvas.height_for(600)
    installed_theme.set_mode("dark")
    try:
        assert [block.text for block in canvas.blocks] == ["T", "words"]
        assert canvas.height_for(600) == height
    finally:
        installed_theme.set_mode("light")


@pytest.mark.parametrize(("seconds", "words"), [(0.038, "38 ms"), (1.24, "1.2 s"), (180, "3 min")])
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_the_context_menu_copies(canvas, qtbot):
    canvas.set_text("[here](https://a.example/x) and **more**")
    canvas.resize(600, canvas.height_for(600))
    canvas.show()
    place = QPoint(10, 10)
    event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, canvas.mapToGlobal(place))
    QApplication.sendEvent(canvas, event)
    menu = canvas.findChild(QMenu)
    actions = {action.text(): action for action in menu.actions()}
    assert not actions["Copy the selection"].isEnabled()
    actions["Copy all of it"].trigger()
    assert QApplication.clipboard().text() == "[here](https://a.example/x) and **more**"
    actions["Copy the link"].trigger()
    assert QApplication.clipboard().text() == "https://a.example/x"
    menu.close()
    canvas.hide()
