"""x"""


class View: ...
