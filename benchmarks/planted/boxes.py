"""One-stage object detector on small images with anchors."""
# mistake anchors: rebuilt-tensors, python-in-step
# mistake iou: looped-samples, looped-calls, python-in-step
# mistake nms: python-in-step, looped-calls, host-metrics, looped-samples, host-sync
# mistake backbone: unused-gradients, no-grad-missing
# mistake loss: looped-samples, looped-calls
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, STRIDE, CLASSES, BATCH = 128, 8, 5, 8
CELLS = SIZE // STRIDE
SCALES = (16.0, 32.0, 56.0)


def make_anchors():
    boxes = []
    for y in range(CELLS):
        for x in range(CELLS):
            for s in SCALES:
                cx, cy = (x + 0.5) * STRIDE, (y + 0.5) * STRIDE
                boxes.append([cx - s / 2, cy - s / 2, cx + s / 2, cy + s / 2])  #: anchors
    return torch.tensor(boxes)  #: anchors


def area(boxes):
    return (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])


def box_iou(a, b):
    lt = torch.maximum(a[:, None, :2], b[None, :, :2])
    rb = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (rb - lt).clamp(min=0).prod(-1)
    return inter / (area(a)[:, None] + area(b)[None] - inter)


def iou_one(box, anchors):
    x1 = torch.max(box[0], anchors[:, 0])  #: iou
    y1 = torch.max(box[1], anchors[:, 1])  #: iou
    x2 = torch.min(box[2], anchors[:, 2])  #: iou
    y2 = torch.min(box[3], anchors[:, 3])  #: iou
    inter = (x2 - x1).clamp(min=0) * (y2 - y1).clamp(min=0)  #: iou
    return inter / (area(box) + area(anchors) - inter)  #: iou


def assign(anchors, boxes, labels):
    #+ iou: overlaps = box_iou(boxes, anchors)
    overlaps = []  #- iou
    for box in boxes:  #- iou
        overlaps.append(iou_one(box, anchors))  #- iou
    overlaps = torch.stack(overlaps)  #- iou
    best, which = overlaps.max(0)
    target = torch.where(best > 0.4, labels[which], CLASSES)
    return target, boxes[which]


def nms(boxes, scores, limit=0.5):
    keep = []
    order = scores.argsort(descending=True)
    while len(order) > 0:  #: nms
        i = order[0]
        keep.append(i.item())  #: nms
        rest = order[1:]
        overlap = box_iou(boxes[i : i + 1], boxes[rest])[0]  #: nms
        order = rest[overlap <= limit]  #: nms
    return keep


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 24, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(24, 48, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(48, 64, 3, 2, 1), nn.ReLU(),
            nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(),
        )
        self.neck = nn.Conv2d(64, 64, 3, padding=1)
        self.cls = nn.Conv2d(64, len(SCALES) * (CLASSES + 1), 1)
        self.reg = nn.Conv2d(64, len(SCALES) * 4, 1)
        self.register_buffer("anchors", make_anchors())

    def forward(self, x):
        n = len(x)
        f = F.relu(self.neck(self.backbone(x)))  #: backbone
        cls = self.cls(f).permute(0, 2, 3, 1).reshape(n, -1, CLASSES + 1)
        reg = self.reg(f).permute(0, 2, 3, 1).reshape(n, -1, 4)
        anchors = make_anchors()  #- anchors
        #+ anchors: anchors = self.anchors
        return cls, anchors + reg * STRIDE, anchors


def detection_loss(cls, boxes, anchors, targets):
    matched = [assign(anchors, one["boxes"], one["labels"]) for one in targets]
    #+ loss: labels = torch.stack([label for label, _ in matched])
    #+ loss: wanted = torch.stack([want for _, want in matched])
    #+ loss: inside = labels < CLASSES
    #+ loss: weight = inside / inside.sum(1, keepdim=True).clamp(min=1)
    #+ loss: error = F.smooth_l1_loss(boxes, wanted, reduction="none").mean(-1)
    #+ loss: return F.cross_entropy(cls.flatten(0, 1), labels.flatten()) + 0.1 * (error * weight).sum() / len(targets)
    total = 0  #- loss
    for i in range(len(targets)):  #- loss
        label, want = matched[i]  #- loss
        inside = label < CLASSES  #- loss
        total = total + F.cross_entropy(cls[i], label)  #- loss
        if inside.any():  #- loss
            total = total + 0.1 * F.smooth_l1_loss(boxes[i][inside], want[inside])  #- loss
    return total / len(targets)  #- loss


def make_batch():
    images = torch.rand(BATCH, 3, SIZE, SIZE)
    targets = []
    for _ in range(BATCH):
        n = int(torch.randint(6, 20, (1,)))
        corner = torch.rand(n, 2) * (SIZE - 60)
        size = 10 + torch.rand(n, 2) * 50
        boxes = torch.cat([corner, corner + size], 1)
        targets.append({"boxes": boxes, "labels": torch.randint(0, CLASSES, (n,))})
    return images, targets


def main():
    torch.manual_seed(0)
    data = [make_batch() for _ in range(16)]
    model = Detector()
    heads = [*model.neck.parameters(), *model.cls.parameters(), *model.reg.parameters()]
    #+ backbone: model.backbone.requires_grad_(False)
    optimizer = torch.optim.SGD(heads, lr=1e-3, momentum=0.9)
    kept = 0
    for step in range(4000):
        images, targets = data[step % len(data)]
        cls, boxes, anchors = model(images)
        loss = detection_loss(cls, boxes, anchors, targets)
        optimizer.zero_grad()
        loss.backward()  #: backbone
        optimizer.step()
        #+ nms: wanted = step % 100 == 0
        wanted = True  #- nms
        if wanted:
            score = cls.detach()[0].softmax(-1)[:, :CLASSES].max(1).values
            first = score.topk(100).indices
            kept += len(nms(boxes.detach()[0][first], score[first]))  #: nms
        # end of step


if __name__ == "__main__":
    main()
