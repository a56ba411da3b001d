#!/usr/bin/env python3
"""Draws the CSV of soak.py as an SVG: memory, descriptors, threads and steps per second of each daemon.

  tests/campaigns/soak_picture.py soak.csv soak.svg
"""
import csv
import sys

PANELS = [('resident_bytes', 'memory, MiB', 2**-20), ('descriptors', 'descriptors', 1), ('threads', 'threads', 1),
          ('steps_per_second', 'steps per second', 1)]
COLOURS = ['#1b6ca8', '#c8553d', '#4f9d69', '#8e6c8a', '#b08900']
WIDTH, HEIGHT, LEFT, TOP, GAP = 760, 130, 70, 40, 46


def text(x, y, words, more=''):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def panel(rows, tasks, name, title, scale, top, end):
    most = max([row[name] * scale for row in rows] + [1]) * 1.1
    x = lambda row: LEFT + WIDTH * row['seconds'] / end
    y = lambda value: top + HEIGHT * (1 - value / most)
    out = [text(LEFT, top - 8, title, 'font-weight="bold"'),
           f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>']
    for part in (0, 0.5, 1):
        out.append(text(LEFT - 6, y(most * part) + 4, f'{most * part:.4g}', 'text-anchor="end"'))
    for task, colour in zip(tasks, COLOURS):
        points = ' '.join(f'{x(row):.1f},{y(row[name] * scale):.1f}' for row in rows if row['task'] == task)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return out


def draw(rows, path):
    rows = [{key: value if key == 'task' else float(value) for key, value in row.items()} for row in rows]
    tasks = sorted({row['task'] for row in rows})
    end = max(row['seconds'] for row in rows)
    height = TOP + len(PANELS) * (HEIGHT + GAP) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>']
    for i, (task, colour) in enumerate(zip(tasks, COLOURS)):
        out.append(text(LEFT + 110 * i, 18, task, f'fill="{colour}"'))
    for i, (name, title, scale) in enumerate(PANELS):
        out += panel(rows, tasks, name, title, scale, TOP + 10 + i * (HEIGHT + GAP), end)
    out.append(text(LEFT, height - 18, '0'))
    out.append(text(LEFT + WIDTH, height - 18, f'{end:.0f} s', 'text-anchor="end"'))
    with open(path, 'w') as file:
        file.write('\n'.join(out + ['</svg>\n']))


if __name__ == '__main__':
    with open(sys.argv[1], newline='') as rows_file:
        draw(list(csv.DictReader(rows_file)), sys.argv[2])
