package cost

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"golang.org/x/text/currency"
)

// Money prints an amount for people, such as "830.00 $": rounded once, exactly from its binary value, to the smallest unit
// that is in use of its currency (ISO 4217: two digits for USD, none for JPY). Where components are printed beside their
// total, each is rounded by itself, and their sum may differ from it by a unit of the last digit.
func Money(amount float64, code string) string {
	digits, symbol := denomination(code)
	text := strconv.FormatFloat(amount, 'f', digits, 64)
	if strings.Trim(text, "-0.") == "" {
		text = strings.TrimPrefix(text, "-")
	}
	return text + " " + symbol
}

// Price prints a price, such as "0.744 $": with as many digits as it has, but no fewer than Money prints.
func Price(amount float64, code string) string {
	digits, symbol := denomination(code)
	text := strconv.FormatFloat(amount, 'f', -1, 64)
	if _, decimals, _ := strings.Cut(text, "."); len(decimals) < digits {
		text = strconv.FormatFloat(amount, 'f', digits, 64)
	}
	return text + " " + symbol
}

// denomination is how many digits the amounts of a currency have, and how it is written.
func denomination(code string) (digits int, symbol string) {
	unit, err := currency.ParseISO(code)
	if err != nil {
		return 2, code
	}
	digits, _ = currency.Standard.Rounding(unit)
	if unit == currency.USD {
		return digits, "$"
	}
	return digits, fmt.Sprint(currency.Symbol(unit))
}

func number(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// percent prints a share with one decimal, or none where there is none to print.
func percent(share float64) string {
	return strings.TrimSuffix(strconv.FormatFloat(100*share, 'f', 1, 64), ".0") + " %"
}

// jsonDigits is how many decimals amounts and shares have in JSON: enough to add up thousands of small ones, and too few to
// show that decimals are no binary numbers.
const jsonDigits = 1e6

func rounded(x float64) float64 { return math.Round(x*jsonDigits) / jsonDigits }

// MarshalJSON prints the components with what follows from them, each rounded to a millionth.
func (b Breakdown) MarshalJSON() ([]byte, error) {
	type plain Breakdown
	out := struct {
		plain
		Total      float64 `json:"total"`
		Overhead   float64 `json:"overhead"`
		Saved      float64 `json:"saved"`
		SavedShare float64 `json:"saved_share"`
	}{
		plain: plain(b), Total: rounded(b.Total()), Overhead: rounded(b.Overhead()),
		Saved: rounded(b.Saved()), SavedShare: rounded(b.SavedShare()),
	}
	for _, x := range []*float64{
		&out.Compute, &out.Stall, &out.Recovery, &out.Storage, &out.Transfer, &out.OnDemand, &out.UnpricedHours,
	} {
		*x = rounded(*x)
	}
	return json.Marshal(out)
}
