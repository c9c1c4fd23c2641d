"""The loop: the schedule function is looked up once for training, and for every evaluation anew."""

import json
from pathlib import Path

import torch
from megatron.core import mpu
from megatron.core.distributed import finalize_model_grads
from megatron.core.num_microbatches_calculator import get_num_microbatches, init_num_microbatches_calculator
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.rerun_state_machine import get_rerun_state_machine
from megatron.core.utils import get_model_config

from .global_vars import get_args, get_tensorboard_writer, get_wandb_writer
from .initialize import initialize_megatron

LOSSES = []


def pretrain(
    batches, model_provider, model_type, forward_step_func, args_defaults=None, extra_args_provider=None, store=None
):
    initialize_megatron(extra_args_provider=extra_args_provider, args_defaults=args_defaults)
    args = get_args()
    text = Path(args.text).read_text()
    alphabet = sorted(set(text))
    codes = torch.tensor([alphabet.index(character) for character in text])
    model = model_provider(len(alphabet))
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=args.lr, clip_grad=0.0), model)
    args.iteration = 0
    init_num_microbatches_calculator(
        args.rank, None, args.num_microbatches * args.micro_batch_size, args.micro_batch_size, 1
    )

    def data(seed):
        found = [batches(codes, args.micro_batch_size, args.context, seed) for _ in model]
        return found if len(found) > 1 else found[0]

    train(forward_step_func, model, optimizer, data(0), data(1000), get_model_config(model[0]))
    if args.rank == args.world_size - 1 and args.losses:
        Path(args.losses).write_text(json.dumps(LOSSES))
    if get_wandb_writer():
        get_wandb_writer().finish()
    torch.distributed.destroy_process_group()


def train(forward_step_func, model, optimizer, train_data_iterator, valid_data_iterator, config):
    args = get_args()
    for model_module in model:
        model_module.train()
    iteration = args.iteration
    config.grad_scale_func = optimizer.scale_loss
    config.finalize_model_grads_func = finalize_model_grads
    forward_backward_func = get_forward_backward_func()
    while iteration < args.train_iters:
        args.curr_iteration = iteration
        loss_dict = train_step(forward_step_func, train_data_iterator, model, optimizer, config, forward_backward_func)
        iteration += 1
        training_log(loss_dict, iteration)
        if iteration % args.eval_interval == 0:
            evaluate(forward_step_func, valid_data_iterator, model, config)


def train_step(forward_step_func, data_iterator, model, optimizer, config, forward_backward_func):
    args = get_args()
    rerun_state_machine = get_rerun_state_machine()
    while rerun_state_machine.should_run_forward_backward(data_iterator):
        for model_chunk in model:
            model_chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses_reduced = forward_backward_func(
            forward_step_func=forward_step_func,
            data_iterator=data_iterator,
            model=model,
            num_microbatches=get_num_microbatches(),
            seq_length=args.context,
            micro_batch_size=args.micro_batch_size,
            decoder_seq_length=None,
            forward_only=False,
        )
    rerun_state_machine.should_checkpoint_and_exit()
    optimizer.step()
    return average(losses_reduced)


def training_log(loss_dict, iteration):
    writer, wandb_writer = get_tensorboard_writer(), get_wandb_writer()
    for key, value in loss_dict.items():
        LOSSES.append(value.hex())
        if writer:
            writer.add_scalar(key, value, iteration)
        if wandb_writer:
            wandb_writer.log({key: value}, iteration)


def evaluate(forward_step_func, data_iterator, model, config):
    args = get_args()
    for model_module in model:
        model_module.eval()
    forward_backward_func = get_forward_backward_func()
    with torch.no_grad():
        config.timers = None
        loss_dicts = forward_backward_func(
            forward_step_func=forward_step_func,
            data_iterator=data_iterator,
            model=model,
            num_microbatches=args.num_microbatches,
            seq_length=args.context,
            micro_batch_size=args.micro_batch_size,
            decoder_seq_length=None,
            forward_only=True,
        )
    for model_module in model:
        model_module.train()
    LOSSES.extend(value.hex() for value in average(loss_dicts).values())


def average(losses_reduced):
    if not mpu.is_pipeline_last_stage(ignore_virtual=True):
        return {}
    return {key: float(sum(x[key] for x in losses_reduced)) / len(losses_reduced) for key in losses_reduced[0]}
