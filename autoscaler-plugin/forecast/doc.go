// Package forecast says what a spot price will be: not one number but its quantiles, from the model that did best on each
// series so far. It is pure: prices and times go in, quantiles come out.
//
// The models are persistence (the last price and the past changes at that horizon), step models of prices that stand still
// and then move in a rhythm, with or without momentum, ARIMA and exponential smoothing. Panel runs them over many series at
// once, origin by origin, scores each forecast when its outcome is known, and chooses by that record alone. Where no model
// beats persistence it says so.
//
// Nothing is tuned on a price file: the few constants are prior weights in numbers of windows, stated where they stand.
package forecast
