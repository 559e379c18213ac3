"""One test at least for each row of the threat model; its name, or its docstring, says which."""
