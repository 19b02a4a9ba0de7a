"""`make bench`: what Outlive costs beside the barest thing that does the same job.

Rule 1: no number stands alone. Outlive and its bare rival run in one go, in turns, on the same disk and
        the same HTTP stack, and what is compared is the median of the ratios of neighbouring rounds.
Rule 2: nothing here is asserted in seconds. Machines differ; ratios travel better.
Rule 3: whatever a benchmark starts or writes is private to it and gone when it ends, also after Ctrl-C.
"""
