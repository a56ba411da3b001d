#!/usr/bin/env python3
"""Draws the CSV of soak.py as an SVG: memory, descriptors and threads of each daemon, and the speed of a job.

  tests/campaigns/soak_picture.py soak.csv soak.svg
"""
import csv
import statistics
import sys

PANELS = [('own_bytes', 'memory of its own, MiB', 2**-20), ('descriptors', 'descriptors', 1), ('threads', 'threads', 1),
          ('speed', 'speed of a job, to that of one process', 1)]
MOST_POINTS = 300  # of a line; more are drawn as medians of some in a row
WHAT = {'jobs': 'jobs', 'jobs_that_saved': 'of them saved', 'sessions_run': 'short sessions',
        'clients_killed': 'clients killed', 'daemons_killed': 'kills of a daemon', 'cuts': 'cuts'}
COLOURS = ['#1b6ca8', '#c8553d', '#4f9d69', '#8e6c8a', '#b08900']
WIDTH, HEIGHT, LEFT, TOP, GAP = 760, 130, 70, 40, 46


def text(x, y, words, more=''):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{words}</text>'


def thinned(points):
    size = -(-len(points) // MOST_POINTS)
    groups = [points[i:i + size] for i in range(0, len(points), size)]
    return [(group[len(group) // 2][0], statistics.median(y for _, y in group)) for group in groups]


def panel(rows, tasks, name, title, scale, top, end):
    most = max([row[name] * scale for row in rows] + [0.01]) * 1.1
    out = [text(LEFT, top - 8, title, 'font-weight="bold"'),
           f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>']
    for part in (0, 0.5, 1):
        out.append(text(LEFT - 6, top + HEIGHT * (1 - part) + 4, f'{most * part:.3g}', 'text-anchor="end"'))
    for task, colour in zip(tasks, COLOURS):
        # A killed daemon and a further run are new processes.
        mine = [row for row in rows if row['task'] == task]
        for run in sorted({row['run'] for row in mine}):
            points = thinned([(row['seconds'], row[name] * scale) for row in mine if row['run'] == run])
            path = ' '.join(f'{LEFT + WIDTH * x / end:.1f},{top + HEIGHT * (1 - y / most):.1f}' for x, y in points)
            out.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.2"/>')
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
        # The speed is the job's, the same in the rows of all tasks.
        of = tasks if name != 'speed' else tasks[:1]
        out += panel([row for row in rows if row['task'] in of], of, name, title, scale, TOP + 10 + i * (HEIGHT + GAP), end)
    last = rows[-1]
    what = ', '.join(f'{last[name]:.0f} {words}' for name, words in WHAT.items() if last[name])
    out.append(text(LEFT, height - 14, f'{end / 60:.0f} minutes: {what}'))
    with open(path, 'w') as file:
        file.write('\n'.join(out + ['</svg>\n']))


if __name__ == '__main__':
    with open(sys.argv[1], newline='') as rows_file:
        draw(list(csv.DictReader(rows_file)), sys.argv[2])
