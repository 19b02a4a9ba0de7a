"""What a search compares: the words of a text. Pure, and the same for every database.

Databases get words that are already folded and apart, and queries made of such words: so they cannot disagree about
what a word is, and nothing of their query language can be reached from outside.
"""

import json
import re
import unicodedata

from outlive.conversation.log import SEARCHED_CHARACTERS

QUERY_WORDS_LIMIT = 32

# What `text_of` says of an event, for one that is read back: type -> where in its payload the text is.
TEXT_FIELDS = {"conversation.created": "title", "message.sent": "text", "model.responded": "text"}
WORD_LIMIT = 64  # characters; of longer ones the beginning is found

# Chinese and Japanese are written without spaces: there each character counts as a word.
_ALONE = "\u2e80-\u2fff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(f"[{_ALONE}]|[^\\W_{_ALONE}]+")


# What is not a letter or a digit, in ASCII: most text is, and splitting it this way takes half the time.
_GAPS = {code: " " for code in range(128) if not chr(code).isalnum()}


def words_of(text: str) -> list[str]:
    """The words an event is found by, each once."""
    text = text[:SEARCHED_CHARACTERS]
    if text.isascii():
        words = dict.fromkeys(text.lower().translate(_GAPS).split())
    else:
        decomposed = unicodedata.normalize("NFKD", text)
        plain = "".join(c for c in decomposed if not unicodedata.combining(c))
        words = dict.fromkeys(_WORD.findall(unicodedata.normalize("NFC", plain.casefold())))
    if len(text) > WORD_LIMIT:
        words = dict.fromkeys(word[:WORD_LIMIT] for word in words)
    return list(words)


def words_of_stored(type: str, data_json: str) -> list[str]:
    """The words an event is found by, from its type and payload as they are stored."""
    text = json.loads(data_json).get(TEXT_FIELDS[type])
    return words_of(text) if isinstance(text, str) else []


def query_words(query: str) -> list[str]:
    """The words a query asks for; the last, and those as long as a word can be, may be the beginning of one."""
    return words_of(query)[:QUERY_WORDS_LIMIT]
