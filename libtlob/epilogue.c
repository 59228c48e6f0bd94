#include <tlob/gemm.h>

static const tlob_epilogue_traits table[TLOB_EPILOGUE_COUNT] = {
    [TLOB_EPILOGUE_NONE] = {.name = "none"},
    [TLOB_EPILOGUE_BIAS] = {.name = "bias", .reads_bias = true},
    [TLOB_EPILOGUE_RELU] = {.name = "relu"},
    [TLOB_EPILOGUE_RELU_BIAS] = {.name = "relu_bias", .reads_bias = true},
    [TLOB_EPILOGUE_RELU_AUX_BIAS] =
        {.name = "relu_aux_bias", .reads_bias = true, .writes_aux = true, .aux_is_mask = true},
    [TLOB_EPILOGUE_DRELU_BGRAD] =
        {.name = "drelu_bgrad", .writes_bgrad = true, .reads_aux = true, .aux_is_mask = true},
    [TLOB_EPILOGUE_BGRADA] = {.name = "bgrada", .writes_bgrad = true},
    [TLOB_EPILOGUE_BGRADB] = {.name = "bgradb", .writes_bgrad = true},
    [TLOB_EPILOGUE_GELU_BIAS] = {.name = "gelu_bias", .reads_bias = true},
    [TLOB_EPILOGUE_GELU_AUX_BIAS] = {.name = "gelu_aux_bias", .reads_bias = true, .writes_aux = true},
    [TLOB_EPILOGUE_DGELU_BGRAD] = {.name = "dgelu_bgrad", .writes_bgrad = true, .reads_aux = true},
};

const tlob_epilogue_traits *tlob_epilogue_get_traits(tlob_epilogue epilogue) {
    return &table[(unsigned)epilogue < TLOB_EPILOGUE_COUNT ? epilogue : TLOB_EPILOGUE_NONE];
}
