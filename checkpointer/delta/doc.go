// Package delta codes blocks of tensors without loss: byte planes of the numbers or of their differences to the same
// numbers one checkpoint earlier, each plane stored as it is or entropy coded with tables chosen by the exponents of
// the earlier numbers. It does no I/O, and its output depends on its input alone, not on the processor.
package delta
