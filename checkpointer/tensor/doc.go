// Package tensor finds the tensors of a checkpoint file: where each lies, what it is called, what its elements are and
// what it is for. A tensor has the same name in successive checkpoints of a run, wherever in the file it has moved to.
// The package reads through an io.ReaderAt and does nothing else; it runs nothing that a file contains, and what it
// cannot make sense of it calls bytes.
//
// # Formats understood
//
// safetensors (https://huggingface.co/docs/safetensors, section "Format"): eight bytes of header length, little-endian;
// a JSON object that gives each tensor's type, shape and range; the data. Sharded models are several such files.
//
// Zip files of torch.save (PyTorch 1.6 and later; the layout is described in PyTorch's note "Serialization semantics"):
// a zip (PKWARE's APPNOTE.TXT 6.3.10, sections 4.3.7 to 4.3.16 and 4.5.3 for zip64) of uncompressed entries. The pickle
// data.pkl holds the object; each storage, the memory behind one or several tensors, is an entry data/KEY. The keys are
// numbers given in the order of saving, entries are sorted by key as text, and every entry's name begins with that of
// the file; so none of these can name a tensor. A storage is named after the first path in the object that leads to it:
// model.blocks.0.qkv.weight, optim.state.3.exp_avg. The pickle is interpreted by an own reader of protocols 0 to 5
// (opcodes: CPython's pickletools.py; PEP 307 for protocol 2, PEP 3154 for 4, PEP 574 for 5) that builds dictionaries,
// lists and tuples, and takes every class and function for an unknown one, but for those with which PyTorch rebuilds
// tensors (torch/_utils.py).
//
// Data files of torch.distributed.checkpoint, *.distcp (FileSystemWriter in torch/distributed/checkpoint/filesystem.py):
// items one after the other, each written by torch.save, with zip offsets that count from the item's own start. What an
// item is called stands in another file, .metadata; here tensors are named tensor.0, tensor.1, … in the order of the
// file, and what lies in other items object.0.PATH.
//
// Anything else is one section of bytes.
package tensor
