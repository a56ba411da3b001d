#!/usr/bin/env python3
"""Trains by torch from weights, images and labels that another program has saved, and tells the loss of each step: the CNN
of TensorFlow's tutorials, and ResNets of bottleneck blocks. float32, SGD with a momentum of 0.9, a rate of 0.01.

usage: torch_losses.py [--serve] --weights=FILE.safetensors [--help]

FILE has the names and layouts of examples/models: filters are [rows, columns, in, out], images channels last. Each
repetition of the case "loss" is a step; the file is read for the first one. On a GPU if torch finds one, else on the CPU."""

import json

import peer

peer.require("torch")


def read(torch, path):
    """The tensors of a safetensors file, which are all float or int32."""
    kinds = {"F32": torch.float32, "I32": torch.int32}
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = torch.frombuffer(data[begin:end], dtype=kinds[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def conv(f, w, name, x, stride=1):
    filter = w[name + "/weights"].permute(3, 2, 0, 1)
    return f.conv2d(x, filter, stride=stride, padding=filter.shape[2] // 2)


def cnn(f, w, images):
    x = images.reshape(len(images), 1, 28, 28)
    for name in ("conv1", "conv2"):
        x = f.max_pool2d(f.relu(conv(f, w, name, x) + w[name + "/biases"].reshape(1, -1, 1, 1)), 2)
    x = x.permute(0, 2, 3, 1).flatten(1)  # as it lies channels last
    x = f.relu(x @ w["fc1/weights"] + w["fc1/biases"])
    return x @ w["fc2/weights"] + w["fc2/biases"]


def resnet(f, w, images):
    def norm(name, x, stride=1):
        return f.batch_norm(conv(f, w, name, x, stride), None, None, w[name + "/gamma"], w[name + "/beta"], training=True, eps=1e-5)

    x = f.relu(norm("conv1", images.permute(0, 3, 1, 2), 2))
    # Padded as TensorFlow's SAME: an even size only behind, an odd one on both sides.
    rows, columns = (size % 2 for size in x.shape[2:])
    x = f.max_pool2d(f.pad(x, (columns, 1, rows, 1), value=float("-inf")), 3, 2)
    stage = 1
    while "stage%d/block1/conv1/weights" % stage in w:
        block = 1
        while "stage%d/block%d/conv1/weights" % (stage, block) in w:
            name = "stage%d/block%d/" % (stage, block)
            stride = 2 if stage > 1 and block == 1 else 1
            straight = norm(name + "shortcut", x, stride) if name + "shortcut/weights" in w else x
            y = f.relu(norm(name + "conv1", x))
            y = f.relu(norm(name + "conv2", y, stride))
            x = f.relu(norm(name + "conv3", y) + straight)
            block += 1
        stage += 1
    return x.mean((2, 3)) @ w["fc/weights"] + w["fc/biases"]


def training(torch, path):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tensors = {name: tensor.to(device) for name, tensor in read(torch, path).items()}
    images, labels = tensors.pop("images"), tensors.pop("labels").long()
    weights = {name: tensor.requires_grad_() for name, tensor in tensors.items()}
    f = torch.nn.functional
    model = cnn if "fc2/weights" in weights else resnet
    optimizer = torch.optim.SGD(weights.values(), lr=0.01, momentum=0.9)

    def step():
        optimizer.zero_grad(set_to_none=True)
        loss = f.cross_entropy(model(f, weights, images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


def main():
    parser = peer.parser(__doc__)
    parser.add_argument("--weights", required=True)
    args = parser.parse_args()
    torch = peer.load("torch", "torch_losses.py")
    made = []

    def loss(_):
        if not made:
            made.append(training(torch, args.weights))
        return made[0]()

    peer.main("losses/torch", "", {"loss": loss}, args)


if __name__ == "__main__":
    main()
