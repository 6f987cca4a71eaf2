// Greedy decoding with a cache that no step copies: the loop of an application around a program that was exported with
//
//     hub-exporter export MODEL --backends executorch-xnnpack --engine generation.cache=static
//         --engine alloc_graph_input=false --engine alloc_graph_output=false
//
// It takes input_ids[1, n], attention_mask[1, 1, n, tokens], position_ids[1, n] and the tensors of the cache: keys,
// values and a counter for each layer. It gives these tensors first, written to, then the logits, then values that only
// repeat the cache. No memory is planned for any of them: each tensor of the cache has one buffer here, which is set as
// an input and as the output of the same number.
//
//     decode_loop model.pte STEPS ID [ID ...]        prints the ids that follow
#include <executorch/runtime/core/data_loader.h>
#include <executorch/runtime/core/hierarchical_allocator.h>
#include <executorch/runtime/core/memory_allocator.h>
#include <executorch/runtime/executor/memory_manager.h>
#include <executorch/runtime/executor/method.h>
#include <executorch/runtime/executor/program.h>
#include <executorch/runtime/platform/runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

using namespace executorch::runtime;
using executorch::aten::ScalarType;
using executorch::aten::Tensor;
using executorch::aten::TensorImpl;

template <typename T>
T must(Result<T>&& result, const char* what) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s: error 0x%x\n", what, static_cast<unsigned>(result.error()));
    std::exit(1);
  }
  return std::move(result.get());
}

void must(Error error, const char* what) {
  if (error != Error::Ok) {
    std::fprintf(stderr, "%s: error 0x%x\n", what, static_cast<unsigned>(error));
    std::exit(1);
  }
}

// The whole file in memory. An application on a device would map it.
class FileInMemory final : public DataLoader {
 public:
  explicit FileInMemory(const char* path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  Result<FreeableBuffer> load(size_t offset, size_t size, const SegmentInfo&) const override {
    if (offset + size > bytes_.size()) {
      return Error::InvalidArgument;
    }
    return FreeableBuffer(bytes_.data() + offset, size, nullptr);
  }
  Error load_into(size_t offset, size_t size, const SegmentInfo&, void* buffer) const override {
    std::memcpy(buffer, bytes_.data() + offset, size);
    return Error::Ok;
  }
  Result<size_t> size() const override {
    return bytes_.size();
  }

 private:
  std::vector<char> bytes_;
};

// A tensor over memory of ours.
struct Owned {
  std::vector<TensorImpl::SizesType> sizes;
  std::vector<TensorImpl::DimOrderType> order;
  std::vector<TensorImpl::StridesType> strides;
  std::vector<char> bytes;
  std::unique_ptr<TensorImpl> impl;

  Owned(ScalarType type, size_t element, std::vector<TensorImpl::SizesType> shape) : sizes(std::move(shape)) {
    size_t count = 1;
    strides.resize(sizes.size());
    order.resize(sizes.size());
    for (size_t axis = sizes.size(); axis-- > 0;) {
      order[axis] = axis;
      strides[axis] = count;
      count *= sizes[axis];
    }
    bytes.assign(count * element, 0);
    impl = std::make_unique<TensorImpl>(
        type, sizes.size(), sizes.data(), bytes.data(), order.data(), strides.data());
  }
  template <typename T>
  T* data() {
    return reinterpret_cast<T*>(bytes.data());
  }
};

size_t element_size(ScalarType type) {
  return type == ScalarType::Long ? 8 : type == ScalarType::Bool ? 1 : 4;
}

int main(int count, char** arguments) {
  if (count < 4) {
    std::fprintf(stderr, "usage: decode_loop model.pte STEPS ID [ID ...]\n");
    return 2;
  }
  runtime_init();
  FileInMemory file(arguments[1]);
  const Program program = must(Program::load(&file), "load the program");
  const MethodMeta meta = must(program.method_meta("forward"), "find forward");

  std::vector<std::vector<uint8_t>> planned;
  std::vector<Span<uint8_t>> spans;
  for (size_t index = 0; index < meta.num_memory_planned_buffers(); ++index) {
    planned.emplace_back(must(meta.memory_planned_buffer_size(index), "plan"));
    spans.push_back({planned.back().data(), planned.back().size()});
  }
  HierarchicalAllocator arena({spans.data(), spans.size()});
  std::vector<uint8_t> pool(64 << 20), temporary(64 << 20);
  MemoryAllocator allocator(pool.size(), pool.data()), scratch(temporary.size(), temporary.data());
  MemoryManager memory(&allocator, &arena, &scratch);
  Method method = must(program.load_method("forward", &memory), "load forward");

  // The cache: one buffer for each leaf, input and output at once.
  const size_t first = 3, leaves = meta.num_inputs() - first;
  std::vector<std::unique_ptr<Owned>> cache;
  for (size_t leaf = 0; leaf < leaves; ++leaf) {
    const TensorInfo info = must(meta.input_tensor_meta(first + leaf), "leaf");
    cache.push_back(std::make_unique<Owned>(
        info.scalar_type(),
        element_size(info.scalar_type()),
        std::vector<TensorImpl::SizesType>(info.sizes().begin(), info.sizes().end())));
  }
  const int tokens = must(meta.input_tensor_meta(1), "mask").sizes()[3];
  const auto logits_info = must(meta.output_tensor_meta(leaves), "logits");
  const int vocabulary = logits_info.sizes()[2];
  std::vector<float> logits(logits_info.nbytes() / sizeof(float));
  std::vector<std::vector<char>> repeated;  // what comes after the logits and is not looked at
  for (size_t output = leaves + 1; output < meta.num_outputs(); ++output) {
    repeated.emplace_back(must(meta.output_tensor_meta(output), "output").nbytes());
  }

  std::vector<long long> fed;
  for (int index = 3; index < count; ++index) {
    fed.push_back(std::atoll(arguments[index]));
  }
  int done = 0;
  for (int step = 0; step < std::atoi(arguments[2]); ++step) {
    const int length = fed.size();
    Owned ids(ScalarType::Long, 8, {1, length}), positions(ScalarType::Long, 8, {1, length});
    Owned mask(ScalarType::Bool, 1, {1, 1, length, tokens});
    for (int row = 0; row < length; ++row) {
      ids.data<int64_t>()[row] = fed[row];
      positions.data<int64_t>()[row] = done + row;
      std::fill_n(mask.data<bool>() + row * tokens, done + row + 1, true);
    }
    must(method.set_input(EValue(Tensor(ids.impl.get())), 0), "input_ids");
    must(method.set_input(EValue(Tensor(mask.impl.get())), 1), "attention_mask");
    must(method.set_input(EValue(Tensor(positions.impl.get())), 2), "position_ids");
    for (size_t leaf = 0; leaf < leaves; ++leaf) {
      must(method.set_input(EValue(Tensor(cache[leaf]->impl.get())), first + leaf), "set a leaf");
      must(method.set_output_data_ptr(cache[leaf]->bytes.data(), cache[leaf]->bytes.size(), leaf), "bind a leaf");
    }
    must(method.set_output_data_ptr(logits.data(), logits.size() * sizeof(float), leaves), "bind the logits");
    for (size_t index = 0; index < repeated.size(); ++index) {
      must(method.set_output_data_ptr(repeated[index].data(), repeated[index].size(), leaves + 1 + index), "bind the rest");
    }
    must(method.execute(), "execute");
    done += length;
    const float* last = logits.data() + static_cast<size_t>(length - 1) * vocabulary;
    fed = {static_cast<long long>(std::max_element(last, last + vocabulary) - last)};
    std::printf("%lld%c", fed[0], step + 1 == std::atoi(arguments[2]) ? '\n' : ' ');
  }
  return 0;
}
