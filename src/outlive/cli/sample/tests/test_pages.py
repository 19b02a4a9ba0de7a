import unittest

from pager import page, page_count, page_label

ANIMALS = ["ant", "bee", "cat", "dog", "eel"]


class PageCount(unittest.TestCase):
    def test_full_pages(self):
        self.assertEqual(page_count(9, 3), 3)

    def test_the_last_page_need_not_be_full(self):
        self.assertEqual(page_count(10, 3), 4)

    def test_nothing_takes_no_page(self):
        self.assertEqual(page_count(0, 3), 0)

    def test_a_page_has_room(self):
        with self.assertRaises(ValueError):
            page_count(10, 0)


class Page(unittest.TestCase):
    def test_entries_of_a_page(self):
        self.assertEqual(page(ANIMALS, 2, 2), ["cat", "dog"])

    def test_the_last_page_has_the_rest(self):
        self.assertEqual(page(ANIMALS, 3, 2), ["eel"])


class PageLabel(unittest.TestCase):
    def test_an_empty_list_has_one_page(self):
        self.assertEqual(page_label(1, 0, 2), "page 1 of 1")


if __name__ == "__main__":
    unittest.main()
