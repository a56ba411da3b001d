"""The networks that torch's peers train, plainly, as examples/models has them (without dropout). Imported, not run."""


def cnn(nn, fc=1024):
    """The CNN of TensorFlow's tutorials, on images [n, 1, 28, 28]."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(7 * 7 * 64, fc),
        nn.ReLU(inplace=True),
        nn.Linear(fc, 10),
    )


def bottleneck(nn, into, width, stride):
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            out = 4 * width

            def norm(a, b, kernel, step):
                return nn.Sequential(
                    nn.Conv2d(a, b, kernel, stride=step, padding=kernel // 2, bias=False), nn.BatchNorm2d(b)
                )

            self.one, self.two, self.three = norm(into, width, 1, 1), norm(width, width, 3, stride), norm(width, out, 1, 1)
            self.shortcut = nn.Identity() if into == out and stride == 1 else norm(into, out, 1, stride)
            self.relu = nn.ReLU(inplace=True)

        def forward(self, x):
            y = self.relu(self.two(self.relu(self.one(x))))
            return self.relu(self.three(y) + self.shortcut(x))

    return Block()


def resnet50(nn):
    """On images [n, 3, 224, 224]."""
    layers = [nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    into, width = 64, 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for block in range(blocks):
            layers.append(bottleneck(nn, into, width, 2 if stage > 0 and block == 0 else 1))
            into = 4 * width
        width *= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(into, 1000))
