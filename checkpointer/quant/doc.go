// Package quant rounds the moments of optimizers to numbers of fewer bits that stay binary32: a short mantissa, which then is
// coded like any other. Opt-in: a snapshot of precision compact holds what comes out of it. What goes in is gone.
//
// # Rule
//
// Tensors of kind Momentum and Variance (package tensor) and type F32 are rounded, no others. Of the 23 bits of mantissa two
// are kept; the sign and the exponent stay, so that every moment keeps its magnitude whatever its neighbours have. It is a
// quantization with steps in proportion to the number, as the dynamic 8-bit types of the literature are; a block-wise scale
// is not needed, since an entropy coder follows: exponents of moments vary little and take few bits.
//
// First moments go to the nearest number that stays, ties to the one with an even last bit. The largest error is 1/9.
//
// Second moments go up or down, so that on average they are what they were: up if the 21 bits that are cut off, as a number,
// are above the upper 21 bits of u*0x9e3779b1 mod 2³², u being the number's bits. The product is as good as random, because
// the last bits of what an optimizer has computed are; yet the same number always becomes the same, on every machine, and one
// that is a number that stays is not changed. The error is less than 1/4.
//
// # Why second moments do not go to the nearest
//
// They change slowly, by a thousandth a step with beta2 = .999. To the nearest, one that moves by less than half the
// distance between two numbers from one resume to the next is put back to where it was, every time: second moments stand
// still while the gradients change. A training that resumed every 10 steps showed it: after 120 steps its loss differed by
// 60e-4 with one bit of mantissa kept, and by 27e-4 with two, against 3e-4 as it is now. It is not the bits that matter
// there, but the mean.
//
// What stays of it: rounding adds noise, the same each time; second moments forget it within 1/(1-beta2) steps. Where a
// training resumes many times within so many steps it adds up.
//
// # Measured
//
// Losses on text that was not trained on, in 1e-4 above that of the run that was not interrupted, mean ± standard deviation,
// so many steps after the first resume. AdamW; GPTs of bench/series: 0.4 million parameters, beta2 .999, 4 seeds, resumed at
// step 180; 10 million, beta2 .95, one checkpoint at step 220, with which all runs
// begin, 2 orders of batches. The README has the commands.
//
//	                                       0.4 million                 10 million
//	                                     40           120            40           100
//	exact                           0.0 ± 0.0     0.0 ± 0.0
//	compact                        -0.3 ± 0.5    -0.9 ± 0.5    -0.3 ± 0.3    -0.1 ± 0.1
//	compact, every 40 steps        -0.3 ± 0.5    -1.3 ± 0.4
//	compact, every 10 steps        -0.3 ± 0.7    -3.2 ± 0.5    -0.6 ± 0.4    -0.3 ± 0.3
//	1 bit, nearest, every 10       -9.5 ± 4.7   -60.0 ± 8.9
//	2 bits, nearest, every 10      -3.1 ± 1.7   -27.2 ± 4.1
//	other batches                  14.5 ± 39     4.0 ± 27      65.9 ± 314   -97.2 ± 2
//	no moments                     37.2 ± 30    37.1 ± 18     367.3 ± 37    216.5 ± 61
//
// That the loss falls is no merit: roots of second moments that vary make steps a little longer on average.
//
// Of the series fp32 (10 million parameters, 9 checkpoints) 0.352 of the raw bytes are stored with effort auto and 0.351 with
// small: 5.8 bits of first moments, 3.9 of second ones, 21 to 24 of weights. Rounding takes 2 ns a number.
//
// Not measured: larger models, other data, thousands of steps, other optimizers than AdamW. SGD's momentum, Adagrad's sums
// and the like are rounded by the same rule, on the same grounds.
//
// # Literature
//
// Dettmers, Lewis, Shleifer, Zettlemoyer: 8-bit Optimizers via Block-wise Quantization, 2021, arXiv:2110.02861. Moments of
// eight bits, rounded anew at every step, train as well as those of 32.
//
// Eisenman et al.: Check-N-Run: a Checkpointing System for Training Deep Learning Recommendation Models, 2020,
// arXiv:2010.08679. Quantizes checkpoints only, while the training goes on in full precision, as here; how many bits are
// needed depends on how often a training resumes.
package quant
