"""torch in the target interpreter, each operation as it is called: element-wise, matmul, convolution, attention, ..."""
