#!/usr/bin/env python3
"""What soak.py takes for growth, and what its picture shows."""
import argparse
import os
import tempfile
import unittest
import xml.etree.ElementTree

import soak
import soak_picture

LIMITS = argparse.Namespace(most_growth=2, least_speed=0.8)
MIB = 2**20


def table(rounds, run=1, **more):
    """A daemon of each task that stays as it is; `more`: what a column has in round i."""
    rows = []
    for i in range(rounds):
        for task in soak.TASKS:
            row = dict.fromkeys(soak.FIELDS, 0)
            row.update(run=run, seconds=10.5 * i, task=task, own_bytes=30 * MIB, descriptors=17, threads=14, speed=0.7)
            row.update({name: value(i) for name, value in more.items()})
            rows.append(row)
    return rows


def grown(rows):
    return ' '.join(soak.growth(rows, LIMITS))


class Judgement(unittest.TestCase):
    def test_what_stays_as_it_is_has_not_grown(self):
        self.assertEqual(grown(table(30)), '')

    def test_what_grows_while_it_warms_up_has_not_grown(self):
        self.assertEqual(grown(table(30, own_bytes=lambda i: (30 + 10 * min(i, 9)) * MIB)), '')

    def test_what_grows_in_every_round_is_named(self):
        self.assertIn('worker/1: own_bytes grew', grown(table(30, own_bytes=lambda i: 30 * MIB + i * MIB // 4)))
        self.assertIn('ps/0: descriptors grew from 24 to 29', grown(table(30, descriptors=lambda i: 17 + i // 2)))
        self.assertIn('threads grew', grown(table(30, threads=lambda i: 14 + i // 5)))
        self.assertIn('speed', grown(table(30, speed=lambda i: 0.9 - 0.02 * i)))

    def test_one_round_out_of_line_is_not_growth(self):
        self.assertEqual(grown(table(30, descriptors=lambda i: 40 if i == 25 else 17)), '')

    def test_only_the_last_run_is_judged(self):
        self.assertEqual(grown(table(30) + table(30, run=2, own_bytes=lambda i: 90 * MIB)), '')

    def test_too_few_rounds_are_said(self):
        self.assertIn('too few rounds', grown(table(2)))


class Files(unittest.TestCase):
    def test_a_table_is_read_as_it_was_written_and_drawn(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'soak.csv')
            rows = table(700)
            soak.write(rows, path)
            self.assertEqual(soak.read(path), rows)
            picture = os.path.join(folder, 'soak.svg')
            soak_picture.draw(rows, picture)
            lines = xml.etree.ElementTree.parse(picture).iter('{http://www.w3.org/2000/svg}polyline')
            points = [len(line.get('points').split()) for line in lines]
            self.assertEqual(len(points), 3 * len(soak.TASKS) + 1)
            self.assertLessEqual(max(points), soak_picture.MOST_POINTS)


if __name__ == '__main__':
    unittest.main(buffer=True)
