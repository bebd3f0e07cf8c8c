"""Tests of what counts as a difference."""

import unittest

from reading import Packet
from verdict import EDGE_SECONDS, REPEATED_DATAGRAMS, SIGNATURE_BYTES, TIMING_SECONDS, Run, differ, late


def answered(*sizes, says="Initial", varies=False, at=0.01):
    return Run([(at, (Packet(says, size, varies),)) for size in sizes])


class Differ(unittest.TestCase):
    def test_silence_is_like_silence_and_unlike_an_answer(self):
        self.assertFalse(differ([Run()], [Run()]))
        self.assertTrue(differ([Run()], [answered(100)]))
        self.assertTrue(differ([answered(100)], [Run()]))

    def test_what_a_header_says_its_size_and_the_number_of_datagrams_count(self):
        cover = [answered(1200, 40)]
        self.assertFalse(differ([answered(1200, 40)], cover))
        for other in [answered(1200, 41), answered(40, 1200), answered(1200), answered(1200, 40, says="Retry")]:
            self.assertTrue(differ([other], cover), str(other))

    def test_packets_in_one_datagram_are_not_packets_in_two(self):
        packets = (Packet("Initial", 100), Packet("Handshake", 200))
        self.assertTrue(differ([Run([(0, packets)])], [Run([(0, packets[:1]), (0, packets[1:])])]))

    def test_a_signature_may_be_shorter_and_nothing_else(self):
        cover = [answered(700, says="Handshake", varies=True)]
        self.assertFalse(differ([answered(700 - SIGNATURE_BYTES, says="Handshake", varies=True)], cover))
        self.assertTrue(differ([answered(699 - SIGNATURE_BYTES, says="Handshake", varies=True)], cover))

    def test_what_is_random_at_the_cover_may_be_random_at_the_host(self):
        cover = [answered(size) for size in (30, 34, 41)]
        self.assertFalse(differ([answered(size) for size in (33, 36, 43)], cover))
        self.assertTrue(differ([answered(size) for size in (60, 61, 60)], cover))

    def test_a_lost_answer_now_and_then_is_no_difference_and_one_in_most_runs_is(self):
        whole, lost = answered(1200, 40), answered(1200)
        self.assertFalse(differ([whole, lost, whole], [whole, whole, whole]))
        self.assertTrue(differ([lost, lost, whole], [whole, whole, whole]))

    def test_the_last_answer_may_come_too_late(self):
        def run(*times):
            return Run([(seconds, (Packet("Initial", 1200),)) for seconds in times], seconds=1.0)

        self.assertFalse(differ([run(0.1)], [run(0.1, 1 - EDGE_SECONDS / 2)]))
        self.assertTrue(differ([run(0.1)], [run(0.1, 0.9 - EDGE_SECONDS)]))

    def test_a_timer_may_repeat_a_handshake_once_less(self):
        first, again = Packet("Initial ACK, CRYPTO", 1200), Packet("Initial CRYPTO", 1200, is_news=False)
        run = lambda count: Run([(0.01, (first,))] + [(0.2, (again,))] * count, seconds=1.0)
        self.assertFalse(differ([run(REPEATED_DATAGRAMS)], [run(0)]))
        self.assertTrue(differ([run(REPEATED_DATAGRAMS + 1)], [run(0)]))

    def test_facts_count(self):
        self.assertTrue(differ([Run(facts={"status": "200"})], [Run(facts={"status": "404"})]))


class Late(unittest.TestCase):
    def test_the_hop_itself_is_not_late(self):
        hop, found = late({name: ([0.03, 0.031, 0.5], [0.01, 0.011, 0.012]) for name in "abc"})
        self.assertAlmostEqual(hop, 0.02)
        self.assertEqual(found, {})

    def test_what_takes_longer_than_the_others_is_late_and_so_is_what_takes_less(self):
        delays = {name: ([0.03], [0.01]) for name in "abcd"}
        delays["slow"] = ([0.04 + 2 * TIMING_SECONDS], [0.01])
        delays["by itself"] = ([0.001], [0.01 + 3 * TIMING_SECONDS])
        self.assertEqual(set(late(delays)[1]), {"slow", "by itself"})

    def test_nothing_is_late_where_nothing_was_measured(self):
        self.assertEqual(late({"a": ([], [0.1])}), (0.0, {}))


if __name__ == "__main__":
    unittest.main()
