// The body of kernels_*.cc, which define Vector, kLanes, Load, Add, Store and Stream for one
// instruction set inside an unnamed namespace. No other header's inline code may be used here: it
// would be compiled for that instruction set and could be the copy that the linker keeps for
// everybody.

// Four vectors a step: enough loads in flight. N, M of 0: the count is known at run time only.
template <int N, int M, bool kStream>
void Loop(const StreamArguments& a) {
  const int n = N != 0 ? N : a.input_count;
  const int m = M != 0 ? M : a.output_count;
  for (size_t i = a.begin; i < a.end; i += 4 * kLanes) {
    Vector sum[4];
    for (int v = 0; v < 4; ++v) sum[v] = Load(a.inputs[0] + i + v * kLanes);
    for (int r = 1; r < n; ++r) {
      const float* input = a.inputs[r] + i;
      for (int v = 0; v < 4; ++v) sum[v] = Add(sum[v], Load(input + v * kLanes));
    }
    for (int r = 0; r < m; ++r) {
      float* output = a.outputs[r] + i;
      for (int v = 0; v < 4; ++v) {
        if (kStream) {
          Stream(output + v * kLanes, sum[v]);
        } else {
          Store(output + v * kLanes, sum[v]);
        }
      }
    }
  }
  if (kStream) _mm_sfence();
}

template <bool kStream>
void Dispatch(const StreamArguments& a) {
  const int n = a.input_count;
  const int m = a.output_count;
  if (n == 1 && m == 1) return Loop<1, 1, kStream>(a);
  if (n == 2 && m == 2) return Loop<2, 2, kStream>(a);
  if (n == 4 && m == 4) return Loop<4, 4, kStream>(a);
  if (n == 1 && m == 2) return Loop<1, 2, kStream>(a);
  if (n == 1 && m == 4) return Loop<1, 4, kStream>(a);
  if (n == 2 && m == 1) return Loop<2, 1, kStream>(a);
  if (n == 4 && m == 1) return Loop<4, 1, kStream>(a);
  Loop<0, 0, kStream>(a);
}
