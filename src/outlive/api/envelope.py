"""Events, deltas and rewinds as the JSON envelope of the API, put together as text.

`data_json` of an event is JSON text already; decoding it only to encode it again would cost most of a catch-up.
"""

from json.encoder import encode_basestring_ascii

from outlive.base import ConversationId
from outlive.conversation.events import Delta, Event, Rewound

_quote = encode_basestring_ascii


def _or_null(text: str | None) -> str:
    return "null" if text is None else _quote(text)


def event_json(conversation: ConversationId, event: Event, position: str) -> str:
    attempt = "null" if event.attempt is None else event.attempt
    return (
        f'{{"id":"{event.id}","seq":{event.seq},"position":"{position}","conversation":"{conversation}",'
        f'"turn":{_or_null(event.turn)},"step":{_or_null(event.step)},"attempt":{attempt},'
        f'"type":"{event.type}","v":{event.v},"at":"{event.at}","actor":{_quote(event.actor)},'
        f'"data":{event.data_json}}}'
    )


def delta_json(conversation: ConversationId, delta: Delta, position: str) -> str:
    called = "" if delta.call is None else f'"call":{_quote(delta.call)},"stream":{_or_null(delta.stream)},'
    return (
        f'{{"id":"{delta.step}:{delta.attempt}:{delta.offset}","seq":null,"position":"{position}",'
        f'"conversation":"{conversation}","turn":{_or_null(delta.turn)},"step":"{delta.step}",'
        f'"attempt":{delta.attempt},"type":"{delta.type}","v":1,"at":"{delta.at}","actor":{_quote(delta.actor)},'
        f'"data":{{{called}"text":{_quote(delta.text)},"offset":{delta.offset}}}}}'
    )


def rewound_json(conversation: ConversationId, rewound: Rewound, position: str) -> str:
    return (
        f'{{"id":"{rewound.step}:{rewound.attempt}:rewound","seq":null,"position":"{position}",'
        f'"conversation":"{conversation}","turn":{_or_null(rewound.turn)},"step":"{rewound.step}",'
        f'"attempt":{rewound.attempt},"type":"step.rewound","v":1,"at":"{rewound.at}",'
        f'"actor":{_quote(rewound.actor)},"data":{{"step":"{rewound.step}","attempt":{rewound.attempt}}}}}'
    )
