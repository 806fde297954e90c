"""The status page in a browser: what it shows, that names stay text, by keyboard, in light and dark, on a narrow screen.

With $SHUNT_SCREENSHOTS set to a directory the pictures of it stay there."""

import contextlib
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
from browser import PROGRAM, Browser  # noqa: E402

if PROGRAM is None:
    print("skipped: there is no chromium")
    sys.exit(77)

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "tools"))
from world import ctl, support  # noqa: E402, F401

import shunt  # noqa: E402
from loopback import Job, static_cluster  # noqa: E402

HOSTILE = '<img src=x onerror="document.title=1"><script>document.title="taken"</script>&amp;'

# The text whose contrast with what is behind it is too low, by the rule of WCAG (4.5, and 3 for large).
FAINT = """(() => {
  const part = v => (v /= 255) <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = c => .2126 * part(c[0]) + .7152 * part(c[1]) + .0722 * part(c[2]);
  const rgb = s => s.match(/[\\d.]+/g).map(Number);
  const faint = [];
  for (const e of document.querySelectorAll("body *")) {
    if (e.tagName === "SCRIPT" || e.tagName === "NOSCRIPT" || e.classList.contains("skip") || !e.offsetParent) continue;
    if (![...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())) continue;
    let behind = e, back;
    do { back = rgb(getComputedStyle(behind).backgroundColor); behind = behind.parentElement; } while (back[3] === 0 && behind);
    const pair = [light(rgb(getComputedStyle(e).color)), light(back)].sort((a, b) => b - a);
    const ratio = (pair[0] + .05) / (pair[1] + .05);
    if (ratio < (parseFloat(getComputedStyle(e).fontSize) >= 24 ? 3 : 4.5)) faint.push(e.textContent.slice(0, 40) + " " + ratio);
  }
  return faint;
})()"""


# A section of its own behind the last key of the cluster's.
WITH_PAGE = '"10s"\n[page]\naddress = "127.0.0.1:0"'


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.stack = contextlib.ExitStack()
        cls.nodes = cls.stack.enter_context(
            static_cluster(["a", "b"], others={"gone": "127.0.0.1:1"}, etcd_lease=WITH_PAGE))
        node = cls.nodes["a"]
        node.wait_log("status page")
        node.wait_log("link measured")
        cls.url = "http://127.0.0.1:" + re.search(r"status page host=\S+ port=(\d+)", node.log())[1] + "/"
        cls.session = cls.stack.enter_context(shunt.connect(node.socket, name=HOSTILE))
        cls.stack.enter_context(Job([node.socket for node in cls.nodes.values()], HOSTILE))
        cls.browser = Browser()
        cls.stack.callback(cls.browser.close)

    @classmethod
    def tearDownClass(cls):
        cls.stack.close()

    def open(self, **options):
        self.browser.open(self.url, **options)
        self.browser.wait("document.querySelectorAll('.wires li').length === 2")

    def texts(self, selector):
        return self.browser.evaluate(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")

    def picture(self, name):
        if directory := os.environ.get("SHUNT_SCREENSHOTS"):
            self.browser.screenshot(os.path.join(directory, name + ".png"))

    def test_it_shows_the_node_its_links_and_what_they_carry(self):
        self.open()
        self.assertEqual(self.texts("h1"), ["shuntd on " + os.uname().nodename])
        self.assertEqual(self.texts("#state"), ["serving"])
        self.assertEqual(sorted(self.texts(".peer b")), ["b", "gone"])
        self.assertIn("down", self.texts("tbody .state"))
        # Rates are there with the second look.
        self.browser.wait("[...document.querySelectorAll('.wire .out')].some(e => /out .*\\/s/.test(e.textContent))")
        self.browser.wait("getComputedStyle(document.querySelector('li:not(.off) .wire')).getPropertyValue('--thick') >= '2'")
        headings = self.texts("h2")
        for heading in ("Node and links", "Links", "Transfers in flight", "Communicators", "Sessions", "Recent warnings"):
            self.assertTrue(any(h.startswith(heading) for h in headings), headings)
        self.assertTrue(any("127.0.0.1:1" in text for text in self.texts("tbody td")))  # why the node is not up
        self.picture("light")

    def test_it_looks_again_by_itself_and_pauses(self):
        self.open()
        self.browser.evaluate("window.looks = 0; const f = fetch; fetch = (...a) => { ++looks; return f(...a); }; 0")
        self.browser.wait("looks >= 2")
        self.browser.evaluate("document.getElementById('pause').click()")
        self.assertEqual(self.texts("#pause"), ["Go on"])
        self.browser.evaluate("new Promise(d => setTimeout(d, 300))")  # one that is under way
        count = self.browser.evaluate("looks")
        self.browser.evaluate("new Promise(d => setTimeout(d, 3500))")
        self.assertEqual(self.browser.evaluate("looks"), count)
        self.browser.evaluate("document.getElementById('pause').click()")
        self.browser.wait(f"looks > {count}")

    def test_names_stay_text_and_nothing_is_asked_of_others(self):
        self.open()
        self.browser.wait("[...document.querySelectorAll('tbody td, tbody th')].filter(e => e.textContent.includes('onerror')).length >= 2")
        self.assertIn(HOSTILE, [*self.texts("td"), *self.texts("tbody th")])
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('img, tbody script').length"), 0)
        self.assertTrue(self.browser.evaluate("document.title").startswith("shuntd on "))
        self.assertEqual(self.browser.complaints(), [])
        for url in self.browser.requested():
            self.assertTrue(url.startswith((self.url, "data:")), url)

    def test_tables_and_headings_say_what_they_are(self):
        self.open()
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('thead th:not([scope=col])').length"), 0)
        self.assertEqual(self.browser.evaluate("document.querySelectorAll('tbody th:not([scope=row])').length"), 0)
        self.assertEqual(self.browser.evaluate(
            "[...document.querySelectorAll('[aria-labelledby]')].filter(e => !document.getElementById(e.getAttribute('aria-labelledby'))).length"), 0)
        levels = self.browser.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(e => +e.tagName[1])")
        self.assertEqual(levels[0], 1)
        self.assertTrue(all(b <= a + 1 for a, b in zip(levels, levels[1:])), levels)
        self.assertEqual(self.browser.evaluate("document.documentElement.lang"), "en")

    def test_the_keyboard_is_enough(self):
        self.open()
        focused = "(e => e.id || e.className || e.tagName)(document.activeElement)"
        self.browser.press("Tab")
        self.assertEqual(self.browser.evaluate(focused), "skip")
        self.assertGreaterEqual(self.browser.evaluate("document.activeElement.getBoundingClientRect().left"), 0)
        self.browser.press("Enter")
        self.browser.wait("location.hash === '#main' && document.activeElement.id === 'main'")
        self.open()
        self.browser.press("Tab")
        self.browser.press("Tab")
        self.assertEqual(self.browser.evaluate(focused), "pause")
        self.assertNotEqual(self.browser.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "none")
        self.browser.press(" ")
        self.assertEqual(self.browser.evaluate("document.activeElement.getAttribute('aria-pressed')"), "true")
        self.browser.press("Tab")
        self.assertEqual(self.browser.evaluate("document.activeElement.getAttribute('role')"), "region")  # scrolls by keys

    def test_text_can_be_read_in_light_and_dark(self):
        backgrounds = []
        for dark in (False, True):
            self.open(dark=dark)
            self.assertEqual(self.browser.evaluate(FAINT), [])
            backgrounds.append(self.browser.evaluate("getComputedStyle(document.body).backgroundColor"))
        self.assertNotEqual(*backgrounds)
        self.browser.wait("[...document.querySelectorAll('.wire .out')].some(e => /out .*\\/s/.test(e.textContent))")
        self.picture("dark")

    def test_a_narrow_screen_scrolls_in_one_direction(self):
        self.open(width=400, height=800)
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 400)
        self.browser.wait("[...document.querySelectorAll('.wire .out')].some(e => /out .*\\/s/.test(e.textContent))")
        self.assertLessEqual(self.browser.evaluate("document.documentElement.scrollWidth"), 400)
        self.picture("narrow")


class Gone(unittest.TestCase):
    def test_a_drain_and_a_daemon_that_is_gone_are_shown(self):
        with contextlib.ExitStack() as stack:
            node = stack.enter_context(static_cluster(["alone"], etcd_lease=WITH_PAGE))["alone"]
            node.wait_log("status page")
            browser = Browser()
            stack.callback(browser.close)
            browser.open("http://127.0.0.1:" + re.search(r"status page host=\S+ port=(\d+)", node.log())[1] + "/")
            browser.wait("document.getElementById('state').textContent === 'serving'")
            node.shuntctl("drain")
            browser.wait("document.getElementById('state').textContent === 'drained'")
            node.stop()
            browser.wait("document.getElementById('lost').textContent.includes('does not answer')")
            self.assertEqual(browser.evaluate("document.getElementById('state').textContent"), "unreachable")


if __name__ == "__main__":
    unittest.main()
