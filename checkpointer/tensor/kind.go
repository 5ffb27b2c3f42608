package tensor

import "strings"

// moments are names that only an optimizer's state uses, wherever they stand in a tensor's path: those of torch.optim,
// of Apex, DeepSpeed and Megatron-LM, which keep torch's, and of the 8-bit optimizers of bitsandbytes.
var moments = map[string]Kind{
	"exp_avg": Momentum, "exp_avgs": Momentum, "exp_avg_slow": Momentum, "exp_avg_fast": Momentum,
	"momentum_buffer": Momentum, "momentum_buffers": Momentum, "momentum": Momentum, "first_moment": Momentum,
	"exp_avg_sq": Variance, "exp_avg_sqs": Variance, "max_exp_avg_sq": Variance, "max_exp_avg_sqs": Variance,
	"exp_avg_sq_row": Variance, "exp_avg_sq_col": Variance, "exp_inf": Variance, "square_avg": Variance,
	"acc_delta": Variance, "second_moment": Variance,
}

// inState are short names that mean this only within an optimizer's state: those of optax and MLX, of torch's Adagrad,
// and of bitsandbytes.
var inState = map[string]Kind{
	"m": Momentum, "mu": Momentum, "state1": Momentum, "grad_avg": Momentum,
	"v": Variance, "nu": Variance, "state2": Variance, "sum": Variance, "max_v": Variance,
	"param": Weight, "params": Weight, "master": Weight, "master_param": Weight, "master_params": Weight, "ax": Weight,
}

// kindOf tells the kind of a tensor of so many elements from its path, whose components are joined by points. The last
// component that means something decides: flattened names have the moment in the middle,
// optimizer.state.exp_avg.decoder.weight.
func kindOf(path string, dtype DType, elements int64) Kind {
	if elements <= 1 { // step counters, losses, scales
		return Other
	}
	optimizer := false
	state := Other // what short names say, of which a moment's outranks a weight's: opt_state.0.mu.params.kernel
	for rest := path; rest != ""; {
		cut := strings.LastIndexByte(rest, '.')
		c := rest[cut+1:]
		rest = rest[:max(cut, 0)]
		if k, ok := moments[c]; ok {
			return k
		}
		if k, ok := inState[c]; ok && (state == Other || state == Weight) {
			state = k
		}
		if strings.Contains(c, "fp32_") && state == Other { // master weights of DeepSpeed and Megatron-LM
			state = Weight
		}
		optimizer = optimizer || optimizerPart(c)
	}
	switch {
	case optimizer:
		return state
	case dtype.float():
		return Weight
	default:
		return Other
	}
}

// optimizerPart tells whether a component of a path says that an optimizer's state begins there.
func optimizerPart(c string) bool {
	switch c {
	case "opt", "optim", "base_optimizer_state":
		return true
	}
	return strings.HasPrefix(c, "optimizer") || strings.HasPrefix(c, "opt_state") || strings.HasPrefix(c, "optim_state")
}
