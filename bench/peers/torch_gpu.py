#!/usr/bin/env python3
"""torch training on one GPU, eager and compiled: the CNN of TensorFlow's tutorials and ResNet-50, channels last, and a
Transformer encoder in BERT's base size (SGD with momentum, one batch that lies on the GPU). Images, or sequences, per second.

usage: torch_gpu.py [--serve] [--case="ResNet-50, batch 64, bfloat16, compiled"] [--help]

bfloat16 is torch's autocast: float32 weights, as ours. "compiled" replays CUDA graphs, as ours does."""

import sys

import peer
from torch_models import cnn, resnet50

peer.require("torch")


def transformer(nn):
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(30522, 768)
            self.places = nn.Embedding(128, 768)
            layer = nn.TransformerEncoderLayer(
                768, 12, 3072, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.layers = nn.TransformerEncoder(layer, 12, norm=nn.LayerNorm(768), enable_nested_tensor=False)
            self.logits = nn.Linear(768, 30522)

        def forward(self, x):
            tokens = (x * 30522).long()
            return self.logits(self.layers(self.tokens(tokens) + self.places.weight)).flatten(0, 1)

    return Encoder()


def training(torch, build, shape, kind, compiled):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = kind == "TF32"
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(1)
    model = build(torch.nn).cuda().to(memory_format=torch.channels_last)
    x = torch.rand(*shape, device="cuda")
    if len(shape) == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    labels = shape[0] * shape[1] if len(shape) == 2 else shape[0]  # of tokens, or of images
    y = torch.randint(0, 10, (labels,), device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()

    def loss(x, y):
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=kind == "bfloat16"):
            return loss_of(model(x), y)

    forward = torch.compile(loss, mode="reduce-overhead") if compiled else loss

    def step():
        if compiled:
            torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad(set_to_none=True)
        forward(x, y).backward()
        optimizer.step()

    for _ in range(5):
        step()
    torch.cuda.synchronize()
    return step


def main():
    args = peer.parser(__doc__).parse_args()
    torch = peer.load("torch", "torch_gpu.py")
    if not torch.cuda.is_available():
        print("torch_gpu.py: torch finds no GPU", file=sys.stderr)
        sys.exit(peer.MISSING)
    made = {}

    def case(name, build, shape, kind, compiled):
        def repetition(seconds):
            if name not in made:
                made[name] = training(torch, build, shape, kind, compiled)

            def steps():
                for _ in range(8):
                    made[name]()
                torch.cuda.synchronize()

            return 8 * shape[0] * peer.rate(steps, seconds, at_least=2)

        return repetition

    cases = {}
    images = (("CNN", cnn, (64, 1, 28, 28)), ("ResNet-50", resnet50, (64, 3, 224, 224)))
    for name, build, shape, kind in [(*model, kind) for model in images for kind in ("float32", "TF32", "bfloat16")] + [
        ("Transformer", transformer, (64, 128), "bfloat16")
    ]:
        name = "%s, batch 64, %s" % (name, kind)
        for how in ("eager", "compiled"):
            full = "%s, %s" % (name, how)
            cases[full] = case(full, build, shape, kind, how == "compiled")
    peer.main("gpu/torch", "images/s", cases, args)


if __name__ == "__main__":
    main()
