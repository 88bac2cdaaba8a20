/* bcryptprimitives.dll, which Windows 10 has and Wine 8 has not; Rust's standard library loads it for random numbers. */
__declspec(dllimport) unsigned char __stdcall SystemFunction036(void *to, unsigned long size); /* RtlGenRandom */

__declspec(dllexport) int __stdcall ProcessPrng(unsigned char *to, unsigned long long size)
{
    const unsigned long most = 1ul << 20;
    while (size > 0) {
        unsigned long piece = size < most ? (unsigned long)size : most;
        if (!SystemFunction036(to, piece))
            return 0;
        to += piece;
        size -= piece;
    }
    return 1;
}
