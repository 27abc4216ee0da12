"""Tables and figures of Zhang et al.

"A closer look at the calibration of differentially private learners": DP-SGD makes models
over-confident, clipping is the cause, recalibration corrects it.

The paper fine-tunes RoBERTa and fits linear heads on features of ViT and ResNet-50. Here it is
linear heads on the features that ship. `zhang.toml` says what each experiment shows.
"""
