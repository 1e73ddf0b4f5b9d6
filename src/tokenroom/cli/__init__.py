"""The command line: parse, call one public function, hand the result to reports."""
