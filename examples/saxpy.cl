// y = a * x + y, one element per work-item; those beyond n do nothing.
kernel void saxpy(global float *y, global const float *x, float a, uint n) {
  uint i = get_global_id(0);
  if (i < n) y[i] = a * x[i] + y[i];
}
